// Package inventory makes a component export the contract's interface `load-balancer-inventory`.
package inventory

import (
	"skysail.dev/provider"
	"skysail.dev/provider/internal/registry"
)

// Export serves the interface with p. Call it in an init function: the host may call the component
// as soon as these have run.
func Export(p provider.LoadBalancerInventory) { registry.LoadBalancerInventory = p }
