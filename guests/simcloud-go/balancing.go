package main

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"skysail.dev/provider"
)

const (
	clusterTag = "skysail-cluster"
	serviceTag = "skysail-service"
	uidTag     = "skysail-service-uid"
	// pending is the wait before the next look at a resource that is still being created.
	pending = time.Second
)

func (simCloud) LoadBalancerName(_ string, service *provider.Service) string {
	return service.DefaultLoadBalancerName()
}

func (simCloud) GetLoadBalancer(cluster string, service *provider.Service) (*provider.LoadBalancerStatus, error) {
	cloud, err := load()
	if err != nil {
		return nil, err
	}
	ips, err := owned[elasticIP](cloud, "elastic-ips", cluster, service.DefaultLoadBalancerName())
	if err != nil || len(ips) == 0 {
		return nil, err
	}
	return status(ips[0].Address), nil
}

func status(address string) *provider.LoadBalancerStatus {
	return &provider.LoadBalancerStatus{Ingress: []provider.Ingress{{IP: address}}}
}

// EnsureLoadBalancer lists the existing resources first, so that it finds repeated and partial
// work. The idempotency key finds the result of a request whose response was lost.
func (simCloud) EnsureLoadBalancer(cluster string, service *provider.Service, nodes provider.NodeSet) (*provider.LoadBalancerStatus, error) {
	cloud, err := load()
	if err != nil {
		return nil, err
	}
	if err := check(service); err != nil {
		return nil, err
	}
	sources, err := sources(service)
	if err != nil {
		return nil, err
	}
	name := service.DefaultLoadBalancerName()
	ips, servers, err := cloud.present(cluster, name)
	if err != nil {
		return nil, err
	}
	var kept *elasticIP
	keep := slices.IndexFunc(ips, func(ip elasticIP) bool {
		return service.LoadBalancerIP == "" || ip.Address == service.LoadBalancerIP
	})
	if keep >= 0 {
		ip := ips[keep]
		kept = &ip
		ips = slices.Delete(ips, keep, keep+1)
	}
	var stale []virtualServer
	servers = slices.DeleteFunc(servers, func(server virtualServer) bool {
		wanted := kept != nil && server.ElasticIP == kept.ID && hasPort(service, server.Port)
		if !wanted {
			stale = append(stale, server)
		}
		return !wanted
	})
	if err := cloud.remove(stale, ips); err != nil {
		return nil, err
	}
	tags := map[string]string{clusterTag: cluster, serviceTag: service.Key(), uidTag: service.UID}
	if kept == nil {
		if kept, err = cloud.allocate(cluster, service, tags); err != nil {
			return nil, err
		}
	}
	isPending := kept.State == "pending"
	var requests []*provider.Request
	addresses := provider.InternalIPs(nodes, provider.IPv4)
	for _, port := range service.Ports {
		wanted := settings{backends(addresses, port.NodePort), sources, service.ClientIPTimeoutSeconds}
		there := slices.IndexFunc(servers, func(server virtualServer) bool { return server.Port == port.Port })
		switch {
		case there < 0:
			key := fmt.Sprintf("%s/%s/%s/%d", cluster, name, kept.ID, port.Port)
			server := virtualServer{Name: name, ElasticIP: kept.ID, Protocol: "tcp", Port: port.Port, Tags: tags, settings: wanted}
			requests = append(requests, cloud.Post("v1", "virtual-servers").JSON(server).Header("idempotency-key", key))
		case !reflect.DeepEqual(servers[there].settings, wanted):
			requests = append(requests, cloud.Patch("v1", "virtual-servers", servers[there].ID).JSON(wanted))
		}
		isPending = isPending || there >= 0 && servers[there].State == "pending"
	}
	responses, err := provider.SendEvery(requests...)
	if err != nil {
		return nil, err
	}
	for _, response := range responses {
		var server virtualServer
		if err := response.JSON(&server); err != nil {
			return nil, err
		}
		isPending = isPending || server.State == "pending"
	}
	if isPending {
		return nil, provider.RetryAfter(pending, "%s is being made", kept.Address)
	}
	return status(kept.Address), nil
}

func (c *cloud) allocate(cluster string, service *provider.Service, tags map[string]string) (*elasticIP, error) {
	asked := service.LoadBalancerIP
	wanted := map[string]any{"name": service.DefaultLoadBalancerName(), "tags": tags}
	if asked != "" {
		wanted["address"] = asked
	}
	key := fmt.Sprintf("%s/%s/%s", cluster, service.DefaultLoadBalancerName(), asked)
	response, err := c.Post("v1", "elastic-ips").JSON(wanted).Header("idempotency-key", key).Send()
	if err != nil {
		return nil, err
	}
	var ip elasticIP
	return &ip, response.JSON(&ip)
}

func (simCloud) UpdateLoadBalancer(cluster string, service *provider.Service, nodes provider.NodeSet) error {
	cloud, err := load()
	if err != nil {
		return err
	}
	if err := check(service); err != nil {
		return err
	}
	servers, err := owned[virtualServer](cloud, "virtual-servers", cluster, service.DefaultLoadBalancerName())
	if err != nil {
		return err
	}
	addresses := provider.InternalIPs(nodes, provider.IPv4)
	var requests []*provider.Request
	for _, port := range service.Ports {
		there := slices.IndexFunc(servers, func(server virtualServer) bool { return server.Port == port.Port })
		if there < 0 {
			return provider.NotFound("there is no virtual server for port %d", port.Port)
		}
		if wanted := backends(addresses, port.NodePort); !slices.Equal(servers[there].RealServers, wanted) {
			requests = append(requests, cloud.Put("v1", "virtual-servers", servers[there].ID, "real-servers").JSON(wanted))
		}
	}
	_, err = provider.SendEvery(requests...)
	return err
}

func (simCloud) EnsureLoadBalancerDeleted(cluster string, service *provider.Service) error {
	cloud, err := load()
	if err != nil {
		return err
	}
	return cloud.removeAll(cluster, service.DefaultLoadBalancerName())
}

func (c *cloud) removeAll(cluster, name string) error {
	ips, servers, err := c.present(cluster, name)
	if err != nil {
		return err
	}
	return c.remove(servers, ips)
}

func (simCloud) ListLoadBalancers(cluster string) ([]provider.Owned, error) {
	cloud, err := load()
	if err != nil {
		return nil, err
	}
	ips, servers, err := cloud.present(cluster, "")
	if err != nil {
		return nil, err
	}
	named := map[string]map[string]string{}
	for _, ip := range ips {
		named[ip.Name] = ip.Tags
	}
	for _, server := range servers {
		named[server.Name] = server.Tags
	}
	var all []provider.Owned
	for name, tags := range named {
		one := provider.Owned{Name: name}
		namespace, service, ok := strings.Cut(tags[serviceTag], "/")
		if uid := tags[uidTag]; ok && uid != "" {
			one.Service = &provider.ServiceRef{Namespace: namespace, Name: service, UID: uid}
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(one, other provider.Owned) int { return strings.Compare(one.Name, other.Name) })
	return all, nil
}

// DeleteLoadBalancer leaves one of another Service with this name: a load balancer has one Service.
func (simCloud) DeleteLoadBalancer(cluster, name string, service *provider.ServiceRef) error {
	cloud, err := load()
	if err != nil {
		return err
	}
	all, err := list[elasticIP](cloud.Get("v1", "elastic-ips").Query("name", name))
	if err != nil {
		return err
	}
	for _, ip := range all {
		if uid := ip.Tags[uidTag]; service != nil && uid != "" && uid != service.UID {
			return nil
		}
	}
	for _, ip := range all {
		if ip.Tags[clusterTag] != cluster {
			return provider.Denied("load balancer %q is not of cluster %q", name, cluster)
		}
	}
	return cloud.removeAll(cluster, name)
}

// present returns the resources of a name; of all names where it is empty.
func (c *cloud) present(cluster, name string) ([]elasticIP, []virtualServer, error) {
	ips, err := owned[elasticIP](c, "elastic-ips", cluster, name)
	if err != nil {
		return nil, nil, err
	}
	servers, err := owned[virtualServer](c, "virtual-servers", cluster, name)
	return ips, servers, err
}

func owned[T any](c *cloud, kind, cluster, name string) ([]T, error) {
	return list[T](c.Get("v1", kind).Query("tag", clusterTag+"="+cluster).QueryUnlessEmpty("name", name))
}

// remove deletes virtual servers first: an address in use cannot be released.
func (c *cloud) remove(servers []virtualServer, ips []elasticIP) error {
	var first, second []*provider.Request
	for _, server := range servers {
		first = append(first, c.Delete("v1", "virtual-servers", server.ID))
	}
	for _, ip := range ips {
		second = append(second, c.Delete("v1", "elastic-ips", ip.ID))
	}
	for _, requests := range [][]*provider.Request{first, second} {
		for _, result := range provider.SendAll(requests...) {
			if err := provider.Absent(result.Err); err != nil {
				return err
			}
		}
	}
	return nil
}

// check refuses what the cloud does not support before anything is created.
func check(service *provider.Service) error {
	if !slices.Contains(service.Families(), provider.IPv4) {
		return provider.Unsupported("the simulated cloud has IPv4 only")
	}
	for _, port := range service.Ports {
		if port.Protocol != provider.TCP {
			return provider.Unsupported("port %d: the simulated cloud carries TCP only", port.Port)
		}
		if port.NodePort == 0 {
			return provider.Invalid("port %d has no node port: the load balancer reaches pods through node ports", port.Port)
		}
	}
	return nil
}

func hasPort(service *provider.Service, number uint16) bool {
	return slices.ContainsFunc(service.Ports, func(port provider.ServicePort) bool { return port.Port == number })
}

// sources returns the IPv4 ranges; no range at all means every client.
func sources(service *provider.Service) ([]string, error) {
	ranges, err := service.AllowedSources()
	if err != nil {
		return nil, err
	}
	texts := []string{}
	for _, prefix := range ranges {
		if !prefix.Addr().Is4() {
			continue
		}
		if prefix.Bits() == 0 {
			return []string{}, nil
		}
		texts = append(texts, prefix.String())
	}
	if len(texts) == 0 {
		return nil, provider.Unsupported("no source range is IPv4: the simulated cloud has no other clients")
	}
	return texts, nil
}

// backends are sorted as the cloud returns them.
func backends(addresses []string, port uint16) []backend {
	parsed := make([]netip.Addr, 0, len(addresses))
	for _, text := range addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			parsed = append(parsed, address)
		}
	}
	slices.SortFunc(parsed, netip.Addr.Compare)
	all := make([]backend, 0, len(parsed))
	for _, address := range slices.Compact(parsed) {
		all = append(all, backend{address.String(), port})
	}
	return all
}
