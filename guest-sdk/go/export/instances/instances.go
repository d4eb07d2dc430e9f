// Package instances makes a component export the contract's interface `instances`.
package instances

import (
	"skysail.dev/provider"
	"skysail.dev/provider/internal/registry"
)

// Export serves the interface with p. Call it in an init function: the host may call the component
// as soon as these have run.
func Export(p provider.Instances) { registry.Instances = p }
