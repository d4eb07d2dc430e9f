//go:build wasip1

// Package instances has the functions of the contract's interface of this name.
package instances

import (
	"skysail.dev/provider"
	"skysail.dev/provider/internal/glue"
	"skysail.dev/provider/internal/registry"

	wit "skysail.dev/provider/internal/wit/imports/skysail_provider_instances"
	types "skysail.dev/provider/internal/wit/imports/skysail_provider_types"
	wt "skysail.dev/provider/internal/wit/types"
)

type one = wt.Result[wit.Instance, types.Error]

// Describe is the contract's function.
func Describe(nodes *types.NodeSet, detail uint8) wt.Result[[]one, types.Error] {
	defer glue.Enter()()
	defer nodes.Drop()
	asked := provider.Metadata
	if detail == wit.DetailState {
		asked = provider.State
	}
	results, err := registry.Instances.DescribeInstances(glue.NodeSet{Held: nodes}, asked)
	return glue.Of(glue.Each(results, func(result provider.Result[provider.Instance]) one {
		instance := result.Value
		return glue.Of(wit.Instance{
			ProviderId: glue.Text(instance.ProviderID), Shutdown: instance.Shutdown,
			InstanceType: glue.Text(instance.InstanceType), Zone: glue.Text(instance.Zone), Region: glue.Text(instance.Region), Addresses: glue.FromAddresses(instance.Addresses),
			Labels: glue.FromMap(instance.Labels), Extra: glue.FromMap(instance.Extra),
		}, result.Err)
	}), err)
}
