package main

import (
	"slices"
	"strings"

	"skysail.dev/provider"
)

// driver is the CSI driver whose volumes are disks of this cloud.
const driver = "simcloud.skysail.dev"

// VolumeLabels makes one request for the disk; zones are cached.
func (simCloud) VolumeLabels(_ string, volume *provider.PersistentVolume) (map[string]string, error) {
	if volume.Source != "csi" || volume.Driver != driver {
		whose := strings.TrimSpace(volume.Source + " " + volume.Driver)
		return nil, provider.Unsupported("the volume belongs to %s, not to the CSI driver %s", whose, driver)
	}
	if volume.Handle == "" {
		return nil, provider.Invalid("csi.volumeHandle names no disk")
	}
	cloud, err := load()
	if err != nil {
		return nil, err
	}
	response, err := cloud.Get("v1", "volumes", volume.Handle).Send()
	if err != nil {
		return nil, err
	}
	var disk struct {
		Zone string `json:"zone"`
	}
	if err := response.JSON(&disk); err != nil {
		return nil, err
	}
	zones, err := cloud.zones()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(zones, func(zone zone) bool { return zone.Name == disk.Zone })
	if at < 0 {
		// NotFound is for the disk only: an unknown zone does not mean that the disk is gone.
		return nil, provider.Unavailable("the cloud does not list the zone %q", disk.Zone)
	}
	return map[string]string{
		"topology.kubernetes.io/zone": zones[at].Name, "topology.kubernetes.io/region": zones[at].Region,
	}, nil
}
