package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/service/helpers"
)

const (
	clusterTag = "skysail-cluster"
	serviceTag = "skysail-service"
	uidTag     = "skysail-service-uid"
	// Delay of the next attempt while the load balancer is being created.
	pendingRetry = time.Second
)

// loadBalancers creates an elastic IP and a virtual server for each port, all with the load
// balancer's name and the cluster's tag.
type loadBalancers struct {
	cloud *cloud
}

type backend struct {
	Address string `json:"address"`
	Port    int32  `json:"port"`
}

// settings holds the fields of a virtual server that can change.
type settings struct {
	RealServers            []backend `json:"real_servers"`
	AllowedSources         []string  `json:"allowed_sources"`
	SessionAffinitySeconds int32     `json:"session_affinity_seconds"`
}

type virtualServer struct {
	ID        string `json:"id"`
	ElasticIP string `json:"elastic_ip"`
	Port      int32  `json:"port"`
	State     string `json:"state"`
	settings
}

type newVirtualServer struct {
	Name      string            `json:"name"`
	ElasticIP string            `json:"elastic_ip"`
	Protocol  string            `json:"protocol"`
	Port      int32             `json:"port"`
	Tags      map[string]string `json:"tags"`
	settings
}

type elasticIP struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	State   string `json:"state"`
}

type newElasticIP struct {
	Name    string            `json:"name"`
	Address *string           `json:"address"`
	Tags    map[string]string `json:"tags"`
}

func (l *loadBalancers) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (l *loadBalancers) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	calls.WithLabelValues("GetLoadBalancer").Inc()
	ips, err := l.elasticIPs(ctx, cluster, service)
	if err != nil || len(ips) == 0 {
		return nil, false, err
	}
	return status(ips[0].Address), true, nil
}

func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	calls.WithLabelValues("EnsureLoadBalancer").Inc()
	if err := check(service); err != nil {
		return nil, err
	}
	sources, err := allowedSources(service)
	if err != nil {
		return nil, err
	}
	ips, servers, err := l.find(ctx, cluster, service)
	if err != nil {
		return nil, err
	}
	asked := service.Spec.LoadBalancerIP
	var ip *elasticIP
	if kept := slices.IndexFunc(ips, func(ip elasticIP) bool { return asked == "" || ip.Address == asked }); kept >= 0 {
		ip = &elasticIP{ID: ips[kept].ID, Address: ips[kept].Address, State: ips[kept].State}
		ips = slices.Delete(ips, kept, kept+1)
	}
	present := map[int32]virtualServer{}
	var stale []virtualServer
	for _, server := range servers {
		wanted := slices.ContainsFunc(service.Spec.Ports, func(port v1.ServicePort) bool { return port.Port == server.Port })
		if wanted && ip != nil && server.ElasticIP == ip.ID {
			present[server.Port] = server
		} else {
			stale = append(stale, server)
		}
	}
	if err := l.remove(ctx, stale, ips); err != nil {
		return nil, err
	}
	name := cloudprovider.DefaultLoadBalancerName(service)
	tags := map[string]string{clusterTag: cluster, serviceTag: service.Namespace + "/" + service.Name, uidTag: string(service.UID)}
	if ip == nil {
		wanted := newElasticIP{Name: name, Tags: tags}
		if asked != "" {
			wanted.Address = &asked
		}
		ip = &elasticIP{}
		key := fmt.Sprintf("%s/%s/%s", cluster, name, asked)
		if err := l.cloud.send(ctx, http.MethodPost, "/v1/elastic-ips", key, wanted, ip); err != nil {
			return nil, err
		}
	}
	made := make([]virtualServer, len(service.Spec.Ports))
	var group errgroup.Group
	for n, port := range service.Spec.Ports {
		wanted := settings{RealServers: backends(nodes, port.NodePort), AllowedSources: sources, SessionAffinitySeconds: affinity(service)}
		server, there := present[port.Port]
		made[n] = server
		switch {
		case !there:
			group.Go(func() error {
				key := fmt.Sprintf("%s/%s/%s/%d", cluster, name, ip.ID, port.Port)
				request := newVirtualServer{Name: name, ElasticIP: ip.ID, Protocol: "tcp", Port: port.Port, Tags: tags, settings: wanted}
				return l.cloud.send(ctx, http.MethodPost, "/v1/virtual-servers", key, request, &made[n])
			})
		case !server.settings.equal(wanted):
			group.Go(func() error {
				return l.cloud.send(ctx, http.MethodPatch, "/v1/virtual-servers/"+server.ID, "", wanted, &made[n])
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	pending := slices.ContainsFunc(made, func(server virtualServer) bool { return server.State == "pending" })
	if pending || ip.State == "pending" {
		return nil, api.NewRetryError(ip.Address+" is being made", pendingRetry)
	}
	return status(ip.Address), nil
}

func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	calls.WithLabelValues("UpdateLoadBalancer").Inc()
	servers, err := l.virtualServers(ctx, cluster, service)
	if err != nil {
		return err
	}
	var group errgroup.Group
	for _, port := range service.Spec.Ports {
		n := slices.IndexFunc(servers, func(server virtualServer) bool { return server.Port == port.Port })
		if n < 0 {
			return fmt.Errorf("there is no virtual server for port %d", port.Port)
		}
		if wanted := backends(nodes, port.NodePort); !slices.Equal(servers[n].RealServers, wanted) {
			group.Go(func() error {
				return l.cloud.send(ctx, http.MethodPut, "/v1/virtual-servers/"+servers[n].ID+"/real-servers", "", wanted, nil)
			})
		}
	}
	return group.Wait()
}

func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	calls.WithLabelValues("EnsureLoadBalancerDeleted").Inc()
	ips, servers, err := l.find(ctx, cluster, service)
	if err != nil {
		return err
	}
	return l.remove(ctx, servers, ips)
}

func (l *loadBalancers) find(ctx context.Context, cluster string, service *v1.Service) ([]elasticIP, []virtualServer, error) {
	ips, err := l.elasticIPs(ctx, cluster, service)
	if err != nil {
		return nil, nil, err
	}
	servers, err := l.virtualServers(ctx, cluster, service)
	return ips, servers, err
}

func (l *loadBalancers) elasticIPs(ctx context.Context, cluster string, service *v1.Service) ([]elasticIP, error) {
	return list[elasticIP](ctx, l.cloud, "/v1/elastic-ips", owned(cluster, service))
}

func (l *loadBalancers) virtualServers(ctx context.Context, cluster string, service *v1.Service) ([]virtualServer, error) {
	return list[virtualServer](ctx, l.cloud, "/v1/virtual-servers", owned(cluster, service))
}

func owned(cluster string, service *v1.Service) url.Values {
	return url.Values{"tag": {clusterTag + "=" + cluster}, "name": {cloudprovider.DefaultLoadBalancerName(service)}}
}

// remove deletes virtual servers first, because the cloud does not release an address in use.
func (l *loadBalancers) remove(ctx context.Context, servers []virtualServer, ips []elasticIP) error {
	for _, server := range servers {
		if err := l.delete(ctx, "/v1/virtual-servers/"+server.ID); err != nil {
			return err
		}
	}
	for _, ip := range ips {
		if err := l.delete(ctx, "/v1/elastic-ips/"+ip.ID); err != nil {
			return err
		}
	}
	return nil
}

func (l *loadBalancers) delete(ctx context.Context, path string) error {
	err := l.cloud.send(ctx, http.MethodDelete, path, "", nil, nil)
	if errors.Is(err, errNotFound) {
		return nil
	}
	return err
}

func (s settings) equal(other settings) bool {
	return s.SessionAffinitySeconds == other.SessionAffinitySeconds &&
		slices.Equal(s.AllowedSources, other.AllowedSources) && slices.Equal(s.RealServers, other.RealServers)
}

// check refuses a Service that the cloud cannot implement, before anything is created.
func check(service *v1.Service) error {
	for _, port := range service.Spec.Ports {
		if port.Protocol != v1.ProtocolTCP {
			return fmt.Errorf("port %d: the simulated cloud carries TCP only", port.Port)
		}
		if port.NodePort == 0 {
			return fmt.Errorf("port %d has no node port", port.Port)
		}
	}
	return nil
}

func allowedSources(service *v1.Service) ([]string, error) {
	ranges, err := helpers.GetLoadBalancerSourceRanges(service)
	if err != nil {
		return nil, err
	}
	if helpers.IsAllowAll(ranges) {
		return []string{}, nil
	}
	return slices.Sorted(slices.Values(ranges.StringSlice())), nil
}

// backends are the nodes' addresses in the order in which the cloud gives them back.
func backends(nodes []*v1.Node, port int32) []backend {
	var addresses []netip.Addr
	for _, node := range nodes {
		for _, address := range node.Status.Addresses {
			if parsed, err := netip.ParseAddr(address.Address); address.Type == v1.NodeInternalIP && err == nil && parsed.Is4() {
				addresses = append(addresses, parsed)
				break
			}
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	addresses = slices.Compact(addresses)
	all := make([]backend, 0, len(addresses))
	for _, address := range addresses {
		all = append(all, backend{Address: address.String(), Port: port})
	}
	return all
}

func affinity(service *v1.Service) int32 {
	config := service.Spec.SessionAffinityConfig
	if service.Spec.SessionAffinity != v1.ServiceAffinityClientIP || config == nil || config.ClientIP == nil {
		return 0
	}
	return cmp.Or(*config.ClientIP.TimeoutSeconds, v1.DefaultClientIPServiceAffinitySeconds)
}

func status(address string) *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: address}}}
}
