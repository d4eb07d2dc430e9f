package cloudprovider

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"skysail.dev/provider"
)

func (c *Cloud) routes() (cloudprovider.Routes, error) {
	cloud, err := c.vendor()
	if err != nil {
		return nil, err
	}
	routes, supported := cloud.Routes()
	if !supported {
		return nil, provider.Unsupported("the cloud provider has no routes under this cloud-config")
	}
	return routes, nil
}

// ListRoutes is [provider.Routes]', as the methods below.
func (c *Cloud) ListRoutes(cluster string) ([]provider.Route, error) {
	defer settle()
	vendor, err := c.routes()
	if err != nil {
		return nil, err
	}
	present, err := vendor.ListRoutes(context.Background(), cluster)
	if err != nil {
		return nil, failed(err)
	}
	routes := make([]provider.Route, 0, len(present))
	for _, route := range present {
		converted := provider.Route{
			Name: route.Name, Target: provider.Target{Node: string(route.TargetNode)},
			TargetAddresses: fromAddresses(route.TargetNodeAddresses), DestinationCIDR: route.DestinationCIDR,
			Blackhole: route.Blackhole,
		}
		if route.EnableNodeAddresses {
			converted.Extra = map[string]string{provider.EnableNodeAddresses: "true"}
		}
		routes = append(routes, converted)
	}
	return routes, nil
}

func (c *Cloud) CreateRoutes(cluster string, wanted []provider.NewRoute) ([]error, error) {
	defer settle()
	vendor, err := c.routes()
	if err != nil {
		return nil, err
	}
	errors := make([]error, len(wanted))
	c.each(len(wanted), func(index int) {
		route := wanted[index]
		errors[index] = failed(vendor.CreateRoute(context.Background(), cluster, route.NameHint, &cloudprovider.Route{
			TargetNode: types.NodeName(route.Node), TargetNodeAddresses: toAddresses(route.Addresses),
			DestinationCIDR: route.DestinationCIDR,
		}))
	})
	return errors, nil
}

func (c *Cloud) DeleteRoutes(cluster string, routes []provider.Route) ([]error, error) {
	defer settle()
	vendor, err := c.routes()
	if err != nil {
		return nil, err
	}
	errors := make([]error, len(routes))
	c.each(len(routes), func(index int) {
		route := routes[index]
		errors[index] = failed(vendor.DeleteRoute(context.Background(), cluster, &cloudprovider.Route{
			Name: route.Name, TargetNode: types.NodeName(route.Target.Node), DestinationCIDR: route.DestinationCIDR,
			TargetNodeAddresses: toAddresses(route.TargetAddresses), Blackhole: route.Blackhole,
			EnableNodeAddresses: route.Extra[provider.EnableNodeAddresses] == "true",
		}))
	})
	return errors, nil
}
