// Package volumelabels makes a component export the contract's interface
// `persistent-volume-labels`.
package volumelabels

import (
	"skysail.dev/provider"
	"skysail.dev/provider/internal/registry"
)

// Export serves the interface with p. Call it in an init function: the host may call the component
// as soon as these have run.
func Export(p provider.PersistentVolumeLabels) { registry.PersistentVolumeLabels = p }
