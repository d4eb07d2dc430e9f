package cloudprovider

import (
	"context"
	"errors"
	"strings"

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
	c.kube.standsIn = c.options.RouteTarget != nil
	vendor, err := c.routes()
	if err != nil {
		return nil, err
	}
	present, err := vendor.ListRoutes(context.Background(), cluster)
	if err != nil {
		return nil, failed(err)
	}
	targets, err := c.targets(present)
	if err != nil {
		return nil, failed(err)
	}
	routes := make([]provider.Route, 0, len(present))
	for _, route := range present {
		target, stoodIn := targets[route.TargetNode]
		if !stoodIn {
			target = provider.Target{Node: string(route.TargetNode)}
		}
		converted := provider.Route{
			Name: route.Name, Target: target,
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

// targets asks what those names of nodes lead to that stand for the value of an index.
func (c *Cloud) targets(present []*cloudprovider.Route) (map[types.NodeName]provider.Target, error) {
	targets := map[types.NodeName]provider.Target{}
	var names []types.NodeName
	for _, route := range present {
		if _, known := targets[route.TargetNode]; !known && strings.HasPrefix(string(route.TargetNode), stands) {
			targets[route.TargetNode], names = provider.Target{}, append(names, route.TargetNode)
		}
	}
	found, failures := make([]provider.Target, len(names)), make([]error, len(names))
	c.each(len(names), func(index int) {
		value := strings.TrimPrefix(string(names[index]), stands)
		found[index], failures[index] = c.options.RouteTarget(context.Background(), c.in, value)
	})
	for index, name := range names {
		targets[name] = found[index]
	}
	return targets, errors.Join(failures...)
}

func (c *Cloud) CreateRoutes(cluster string, wanted []provider.NewRoute) ([]error, error) {
	defer settle()
	c.kube.useRouteNodes(wanted)
	vendor, err := c.routes()
	if err != nil {
		return nil, err
	}
	failures := make([]error, len(wanted))
	c.each(len(wanted), func(index int) {
		route := wanted[index]
		failures[index] = failed(vendor.CreateRoute(context.Background(), cluster, route.NameHint, &cloudprovider.Route{
			TargetNode: types.NodeName(route.Node), TargetNodeAddresses: toAddresses(route.Addresses),
			DestinationCIDR: route.DestinationCIDR,
		}))
	})
	return failures, nil
}

func (c *Cloud) DeleteRoutes(cluster string, routes []provider.Route) ([]error, error) {
	defer settle()
	vendor, err := c.routes()
	if err != nil {
		return nil, err
	}
	failures := make([]error, len(routes))
	c.each(len(routes), func(index int) {
		route := routes[index]
		failures[index] = failed(vendor.DeleteRoute(context.Background(), cluster, &cloudprovider.Route{
			Name: route.Name, TargetNode: types.NodeName(route.Target.Node), DestinationCIDR: route.DestinationCIDR,
			TargetNodeAddresses: toAddresses(route.TargetAddresses), Blackhole: route.Blackhole,
			EnableNodeAddresses: route.Extra[provider.EnableNodeAddresses] == "true",
		}))
	})
	return failures, nil
}
