//go:build wasip1

// Package loadbalancers has the functions of the contract's interface `load-balancers`.
package loadbalancers

import (
	"skysail.dev/provider"
	"skysail.dev/provider/internal/glue"
	"skysail.dev/provider/internal/registry"

	types "skysail.dev/provider/internal/wit/imports/skysail_provider_types"
	wt "skysail.dev/provider/internal/wit/types"
)

// Name is the contract's function, as the others of this package.
func Name(cluster string, service types.Service) string {
	defer glue.Enter()()
	return glue.Text(registry.LoadBalancers.LoadBalancerName(cluster, glue.ToService(service)))
}

func Get(cluster string, service types.Service) wt.Result[wt.Option[types.LoadBalancerStatus], types.Error] {
	defer glue.Enter()()
	status, err := registry.LoadBalancers.GetLoadBalancer(cluster, glue.ToService(service))
	found := wt.None[types.LoadBalancerStatus]()
	if status != nil {
		found = wt.Some(glue.FromStatus(status))
	}
	return glue.Of(found, err)
}

func Ensure(cluster string, service types.Service, nodes *types.NodeSet) wt.Result[types.LoadBalancerStatus, types.Error] {
	defer glue.Enter()()
	defer nodes.Drop()
	held := glue.NodeSet{Held: nodes}
	status, err := registry.LoadBalancers.EnsureLoadBalancer(cluster, glue.ToService(service), held)
	if err == nil && status == nil {
		// An empty status would take the addresses from the Service.
		err = provider.Internal("EnsureLoadBalancer returned neither a status nor an error")
	}
	if err != nil {
		return glue.Of(types.LoadBalancerStatus{}, err)
	}
	return glue.Of(glue.FromStatus(status), nil)
}

func Update(cluster string, service types.Service, nodes *types.NodeSet) wt.Result[wt.Unit, types.Error] {
	defer glue.Enter()()
	defer nodes.Drop()
	held := glue.NodeSet{Held: nodes}
	return glue.Of(wt.Unit{}, registry.LoadBalancers.UpdateLoadBalancer(cluster, glue.ToService(service), held))
}

func EnsureDeleted(cluster string, service types.Service) wt.Result[wt.Unit, types.Error] {
	defer glue.Enter()()
	return glue.Of(wt.Unit{}, registry.LoadBalancers.EnsureLoadBalancerDeleted(cluster, glue.ToService(service)))
}
