//go:build wasip1

// Package inventory has the functions of the contract's interface `load-balancer-inventory`.
package inventory

import (
	"skysail.dev/provider"
	"skysail.dev/provider/internal/glue"
	"skysail.dev/provider/internal/registry"

	wit "skysail.dev/provider/internal/wit/imports/skysail_provider_load_balancer_inventory"
	types "skysail.dev/provider/internal/wit/imports/skysail_provider_types"
	wt "skysail.dev/provider/internal/wit/types"
)

type service = wt.Tuple3[string, string, string]

// List is the contract's function, as the other one of this package.
func List(cluster string) wt.Result[[]wit.Owned, types.Error] {
	defer glue.Enter()()
	owned, err := registry.LoadBalancerInventory.ListLoadBalancers(cluster)
	return glue.Of(glue.Each(owned, func(one provider.Owned) wit.Owned {
		of := wt.None[service]()
		if one.Service != nil {
			of = wt.Some(service{F0: glue.Text(one.Service.Namespace), F1: glue.Text(one.Service.Name), F2: glue.Text(one.Service.UID)})
		}
		return wit.Owned{Name: glue.Text(one.Name), Service: of, Extra: glue.FromMap(one.Extra)}
	}), err)
}

func Delete(cluster, name string, of wt.Option[service]) wt.Result[wt.Unit, types.Error] {
	defer glue.Enter()()
	var ref *provider.ServiceRef
	if of.IsSome() {
		ref = &provider.ServiceRef{Namespace: of.Some().F0, Name: of.Some().F1, UID: of.Some().F2}
	}
	return glue.Of(wt.Unit{}, registry.LoadBalancerInventory.DeleteLoadBalancer(cluster, name, ref))
}
