//go:build wasip1

// Package volumelabels has the functions of the contract's interface `persistent-volume-labels`.
package volumelabels

import (
	"skysail.dev/provider"
	"skysail.dev/provider/internal/glue"
	"skysail.dev/provider/internal/registry"

	wit "skysail.dev/provider/internal/wit/imports/skysail_provider_persistent_volume_labels"
	types "skysail.dev/provider/internal/wit/imports/skysail_provider_types"
	wt "skysail.dev/provider/internal/wit/types"
)

// Labels is the contract's function.
func Labels(cluster string, v wit.PersistentVolume) wt.Result[glue.Pairs, types.Error] {
	defer glue.Enter()()
	labels, err := registry.PersistentVolumeLabels.VolumeLabels(cluster, &provider.PersistentVolume{
		Name: v.Name, UID: v.Uid, Labels: glue.ToMap(v.Labels), Annotations: glue.ToMap(v.Annotations),
		StorageClass: v.StorageClass, Source: v.Source, Driver: v.Driver, Handle: v.Handle,
		Attributes: glue.ToMap(v.Attributes), Extra: glue.ToMap(v.Extra),
	})
	return glue.Of(glue.FromMap(labels), err)
}
