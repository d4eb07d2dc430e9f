package main

import (
	"net/netip"
	"testing"

	"skysail.dev/provider"
	"skysail.dev/provider/providertest"
)

func TestALoadBalancerHasAnAddressOfThePool(t *testing.T) {
	host := providertest.New(t)
	host.CloudConfig = "[LoadBalancer]\npool = 10.0.0.0/30\n"
	status, err := cloud{}.EnsureLoadBalancer("cluster", &provider.Service{UID: "0a1b"}, provider.NewNodes())
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddr(status.Ingress[0].IP)
	if !netip.MustParsePrefix("10.0.0.0/30").Contains(address) {
		t.Errorf("got %v", address)
	}
}

func TestAWrongPoolIsRefusedWithItsLine(t *testing.T) {
	problems := cloud{}.CheckConfig("[LoadBalancer]\npool = many\n")
	if len(problems) != 1 || problems[0].Line != 2 || problems[0].Key != "LoadBalancer.pool" {
		t.Errorf("got %+v", problems)
	}
}

func TestEveryNodeHasAnInstance(t *testing.T) {
	results, err := cloud{}.DescribeInstances(provider.NewNodes(provider.Node{Name: "a"}), provider.Metadata)
	if err != nil || len(results) != 1 || results[0].Value.ProviderID != "example://a" {
		t.Errorf("got %+v, %v", results, err)
	}
}
