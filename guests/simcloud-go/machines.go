package main

import (
	"slices"
	"time"

	"skysail.dev/provider"
)

const (
	// askedMax is the maximum number of nodes in one request by ID and name: a URL has a limited
	// length, so that the whole list is requested for more.
	askedMax = 100
	// Zones rarely change.
	zonesTTL = 10 * time.Minute
)

// DescribeInstances makes one list request for up to 500 machines of the cloud, or for up to 100
// nodes.
func (simCloud) DescribeInstances(nodes provider.NodeSet, detail provider.Detail) ([]provider.Result[provider.Instance], error) {
	cloud, err := load()
	if err != nil {
		return nil, err
	}
	names, ids := nodes.Names(), nodes.ProviderIDs()
	machines, err := cloud.machinesOf(names, ids)
	if err != nil {
		return nil, err
	}
	var zones []zone
	if detail == provider.Metadata && machines != nil {
		if zones, err = cloud.zones(); err != nil {
			return nil, err
		}
	}
	byID, byName := map[string]*machine{}, map[string]*machine{}
	for index := range machines {
		byID[machines[index].ID], byName[machines[index].Name] = &machines[index], &machines[index]
	}
	results := make([]provider.Result[provider.Instance], len(names))
	for index, name := range names {
		found, how := byName[name], "by name"
		if ids[index] != "" {
			id, err := provider.ParseProviderID(scheme, ids[index])
			if err != nil {
				results[index].Err = err
				continue
			}
			found, how = byID[id], ids[index]
		}
		if found == nil {
			results[index].Err = provider.NotFound("the cloud has no machine for node %s (%s)", name, how)
			continue
		}
		results[index].Value = instance(found, zones)
	}
	return results, nil
}

// machinesOf returns nil where no node can be of this cloud: without a filter the cloud would list
// all machines.
func (c *cloud) machinesOf(names, ids []string) ([]machine, error) {
	request := c.Get("v1", "instances")
	asked := false
	for index, name := range names {
		id, err := provider.ParseProviderID(scheme, ids[index])
		if ids[index] != "" && err != nil {
			continue
		}
		asked = true
		switch {
		case len(names) > askedMax:
		case ids[index] == "":
			request = request.Query("name", name)
		default:
			request = request.Query("id", id)
		}
	}
	if !asked {
		return nil, nil
	}
	machines, err := list[machine](request)
	if machines == nil {
		machines = []machine{}
	}
	return machines, err
}

func instance(machine *machine, zones []zone) provider.Instance {
	region := ""
	if at := slices.IndexFunc(zones, func(zone zone) bool { return zone.Name == machine.Zone }); at >= 0 {
		region = zones[at].Region
	}
	addresses := []provider.NodeAddress{
		{Type: provider.Hostname, Address: machine.Name}, {Type: provider.InternalIP, Address: machine.PrivateAddress},
	}
	if machine.PublicAddress != "" {
		addresses = append(addresses, provider.NodeAddress{Type: provider.ExternalIP, Address: machine.PublicAddress})
	}
	return provider.Instance{
		ProviderID: scheme + "://" + machine.ID, Shutdown: machine.State == "stopped", InstanceType: machine.Type,
		Zone: machine.Zone, Region: region, Addresses: addresses,
	}
}
