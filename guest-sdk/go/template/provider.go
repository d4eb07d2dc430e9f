// The cloud provider example. This first version needs no cloud: load balancers get an address of a
// pool, two Services may get the same one, no traffic flows, and every node has an instance.
// Replace the functions one by one by requests to the cloud; the README of
// skysail.dev/provider shows how.
package main

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"skysail.dev/provider"
	"skysail.dev/provider/export/identity"
	"skysail.dev/provider/export/instances"
	"skysail.dev/provider/export/loadbalancers"
)

func init() {
	identity.Export(cloud{})
	instances.Export(cloud{})
	loadbalancers.Export(cloud{})
}

func main() {}

// scheme begins the provider IDs of this cloud's machines: example://ID.
const scheme = "example"

// cloud implements the interfaces. Each call begins in a new memory.
type cloud struct{}

func (cloud) Describe() provider.Info {
	return provider.Info{Name: scheme, Version: "0.1.0", Description: "Addresses of a pool, without a cloud"}
}

func (cloud) CheckConfig(text string) []provider.Problem {
	_, problems := parse(text)
	return problems
}

// Origins are the scheme, host and port of the cloud's API: no API yet.
func (cloud) Origins(string) []string { return nil }

// parse reads the cloud-config: `[LoadBalancer] pool = CIDR`, an IPv4 range.
func parse(text string) (netip.Prefix, []provider.Problem) {
	ini := provider.ParseINI(text)
	pool, found := ini.Optional("LoadBalancer", "pool")
	if !found {
		pool = "203.0.113.0/24" // The documentation range of RFC 5737.
	}
	prefix, err := netip.ParsePrefix(pool)
	if err != nil || !prefix.Addr().Is4() {
		ini.Refuse("LoadBalancer", "pool", "%q is not an IPv4 range such as 203.0.113.0/24", pool)
	}
	return prefix.Masked(), ini.Problems()
}

// DescribeInstances answers for each node, in the order of the nodes. NotFound deletes the node.
func (cloud) DescribeInstances(nodes provider.NodeSet, _ provider.Detail) ([]provider.Result[provider.Instance], error) {
	results := make([]provider.Result[provider.Instance], nodes.Len())
	addresses := nodes.Addresses(provider.InternalIP)
	for index, name := range nodes.Names() {
		instance := provider.Instance{ProviderID: scheme + "://" + name}
		for _, address := range addresses[index] {
			instance.Addresses = append(instance.Addresses, provider.NodeAddress{Type: provider.InternalIP, Address: address})
		}
		results[index].Value = instance
	}
	return results, nil
}

func (cloud) LoadBalancerName(_ string, service *provider.Service) string {
	return service.DefaultLoadBalancerName()
}

// GetLoadBalancer returns nil if the cloud has no load balancer for the Service.
func (cloud) GetLoadBalancer(_ string, service *provider.Service) (*provider.LoadBalancerStatus, error) {
	pool, err := provider.LoadConfig(parse)
	if err != nil {
		return nil, err
	}
	return &provider.LoadBalancerStatus{Ingress: []provider.Ingress{{IP: address(pool, service.UID).String()}}}, nil
}

// EnsureLoadBalancer is repeated after failures and restarts: look for what exists before creating.
func (c cloud) EnsureLoadBalancer(cluster string, service *provider.Service, _ provider.NodeSet) (*provider.LoadBalancerStatus, error) {
	return c.GetLoadBalancer(cluster, service)
}

func (cloud) UpdateLoadBalancer(string, *provider.Service, provider.NodeSet) error { return nil }

func (cloud) EnsureLoadBalancerDeleted(string, *provider.Service) error { return nil }

// address selects an address of the pool by the Service's UID.
func address(pool netip.Prefix, uid string) netip.Addr {
	hash := fnv.New32a()
	hash.Write([]byte(uid))
	first := pool.Addr().As4()
	host := hash.Sum32() & (1<<(32-pool.Bits()) - 1)
	var bytes [4]byte
	binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(first[:])|host)
	return netip.AddrFrom4(bytes)
}
