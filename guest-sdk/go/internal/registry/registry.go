// Package registry has the provider that the packages below export/ made part of the component.
package registry

import "skysail.dev/provider"

// What the component exports.
var (
	Identity               provider.Identity
	Instances              provider.Instances
	LoadBalancers          provider.LoadBalancers
	LoadBalancerInventory  provider.LoadBalancerInventory
	Routes                 provider.Routes
	PersistentVolumeLabels provider.PersistentVolumeLabels
)
