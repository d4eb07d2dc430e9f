//go:build wasip1

// Package routes has the functions of the contract's interface of this name.
package routes

import (
	"skysail.dev/provider"
	"skysail.dev/provider/internal/glue"
	"skysail.dev/provider/internal/registry"

	wit "skysail.dev/provider/internal/wit/imports/skysail_provider_routes"
	types "skysail.dev/provider/internal/wit/imports/skysail_provider_types"
	wt "skysail.dev/provider/internal/wit/types"
)

// List is the contract's function, as the others of this package.
func List(cluster string) wt.Result[[]wit.Route, types.Error] {
	defer glue.Enter()()
	routes, err := registry.Routes.ListRoutes(cluster)
	return glue.Of(glue.Each(routes, func(route provider.Route) wit.Route {
		return wit.Route{
			Name: glue.Text(route.Name), Target: fromTarget(route.Target),
			TargetAddresses: glue.FromAddresses(route.TargetAddresses), DestinationCidr: glue.Text(route.DestinationCIDR), Blackhole: route.Blackhole, Extra: glue.FromMap(route.Extra),
		}
	}), err)
}

func Create(cluster string, routes []wit.NewRoute) wt.Result[[]wt.Result[wt.Unit, types.Error], types.Error] {
	defer glue.Enter()()
	return glue.Units(registry.Routes.CreateRoutes(cluster, glue.Each(routes, func(route wit.NewRoute) provider.NewRoute {
		return provider.NewRoute{
			NameHint: route.NameHint, Node: route.Node, ProviderID: route.ProviderId.SomeOr(""),
			Addresses: glue.ToAddresses(route.Addresses), DestinationCIDR: route.DestinationCidr, Extra: glue.ToMap(route.Extra),
		}
	})))
}

func Delete(cluster string, routes []wit.Route) wt.Result[[]wt.Result[wt.Unit, types.Error], types.Error] {
	defer glue.Enter()()
	return glue.Units(registry.Routes.DeleteRoutes(cluster, glue.Each(routes, func(route wit.Route) provider.Route {
		return provider.Route{
			Name: route.Name, Target: toTarget(route.Target), TargetAddresses: glue.ToAddresses(route.TargetAddresses),
			DestinationCIDR: route.DestinationCidr, Blackhole: route.Blackhole, Extra: glue.ToMap(route.Extra),
		}
	})))
}

func fromTarget(target provider.Target) wit.Target {
	switch {
	case target.Node != "":
		return wit.MakeTargetNode(glue.Text(target.Node))
	case target.ProviderID != "":
		return wit.MakeTargetProviderId(glue.Text(target.ProviderID))
	case target.Address != "":
		return wit.MakeTargetAddress(glue.Text(target.Address))
	}
	return wit.MakeTargetNone()
}

func toTarget(target wit.Target) provider.Target {
	switch target.Tag() {
	case wit.TargetNode:
		return provider.Target{Node: target.Node()}
	case wit.TargetProviderId:
		return provider.Target{ProviderID: target.ProviderId()}
	case wit.TargetAddress:
		return provider.Target{Address: target.Address()}
	}
	return provider.Target{}
}
