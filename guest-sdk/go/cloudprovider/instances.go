package cloudprovider

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"skysail.dev/provider"
	"skysail.dev/provider/httptransport"
)

// DescribeInstances asks the vendor's provider about each node as upstream's controllers do: by
// InstancesV2, else by the older interfaces Instances and Zones. Equal GETs of the call are sent once.
func (c *Cloud) DescribeInstances(nodes provider.NodeSet, detail provider.Detail) ([]provider.Result[provider.Instance], error) {
	machines := c.kube.useNodes(nodes)
	cloud, err := c.vendor()
	if err != nil {
		return nil, err
	}
	look, err := lookUp(cloud)
	if err != nil {
		return nil, err
	}
	results := make([]provider.Result[provider.Instance], len(machines))
	describe := func(index int) {
		instance, err := look.describe(context.Background(), machines[index], detail)
		results[index] = provider.Result[provider.Instance]{Value: instance, Err: c.failed(err)}
	}
	httptransport.ShareGets(func() {
		if c.options.Serial {
			for index := range machines {
				describe(index)
			}
			return
		}
		var group sync.WaitGroup
		for index := range machines {
			group.Go(func() { describe(index) })
		}
		group.Wait()
	})
	return results, nil
}

// looker is one of the two generations of interfaces about machines.
type looker interface {
	describe(ctx context.Context, node *v1.Node, detail provider.Detail) (provider.Instance, error)
}

func lookUp(cloud cloudprovider.Interface) (looker, error) {
	if instances, supported := cloud.InstancesV2(); supported {
		return second{instances}, nil
	}
	instances, supported := cloud.Instances()
	if !supported {
		return nil, provider.Unsupported("the cloud provider has no instances under this cloud-config")
	}
	zones, hasZones := cloud.Zones()
	if !hasZones {
		zones = nil
	}
	return first{cloud, instances, zones}, nil
}

type second struct{ cloudprovider.InstancesV2 }

func (s second) describe(ctx context.Context, node *v1.Node, detail provider.Detail) (provider.Instance, error) {
	none := provider.Instance{}
	exists, err := s.InstanceExists(ctx, node)
	if err != nil {
		return none, err
	}
	if !exists {
		return none, provider.NotFound("the cloud has no machine for node %s (%s)", node.Name, node.Spec.ProviderID)
	}
	shutdown, err := s.InstanceShutdown(ctx, node)
	if err != nil {
		return none, err
	}
	instance := provider.Instance{ProviderID: node.Spec.ProviderID, Shutdown: shutdown}
	if detail == provider.State && instance.ProviderID != "" {
		return instance, nil
	}
	metadata, err := s.InstanceMetadata(ctx, node)
	if err != nil {
		return none, err
	}
	if metadata == nil {
		return none, provider.Internal("the cloud provider returned no metadata of node %s", node.Name)
	}
	instance.ProviderID, instance.InstanceType = metadata.ProviderID, metadata.InstanceType
	instance.Zone, instance.Region = metadata.Zone, metadata.Region
	instance.Addresses, instance.Labels = fromAddresses(metadata.NodeAddresses), metadata.AdditionalLabels
	return instance, nil
}

type first struct {
	cloud     cloudprovider.Interface
	instances cloudprovider.Instances
	// zones is nil where the cloud has none.
	zones cloudprovider.Zones
}

func (f first) describe(ctx context.Context, node *v1.Node, detail provider.Detail) (provider.Instance, error) {
	none, name, id := provider.Instance{}, types.NodeName(node.Name), node.Spec.ProviderID
	if id == "" {
		var err error
		if id, err = cloudprovider.GetInstanceProviderID(ctx, f.cloud, name); err != nil {
			return none, err
		}
	}
	exists, err := f.instances.InstanceExistsByProviderID(ctx, id)
	if err != nil {
		return none, err
	}
	if !exists {
		return none, provider.NotFound("the cloud has no machine for node %s (%s)", node.Name, id)
	}
	shutdown, err := f.instances.InstanceShutdownByProviderID(ctx, id)
	if err != nil && err != cloudprovider.NotImplemented {
		return none, err
	}
	instance := provider.Instance{ProviderID: id, Shutdown: shutdown}
	if detail == provider.State {
		return instance, nil
	}
	// Upstream tries the name where the ID finds nothing.
	addresses, err := f.instances.NodeAddressesByProviderID(ctx, id)
	if err != nil {
		if addresses, err = f.instances.NodeAddresses(ctx, name); err != nil {
			return none, err
		}
	}
	instance.Addresses = fromAddresses(addresses)
	if instance.InstanceType, err = f.instances.InstanceTypeByProviderID(ctx, id); err != nil {
		if instance.InstanceType, err = f.instances.InstanceType(ctx, name); err != nil {
			return none, err
		}
	}
	if f.zones != nil {
		zone, err := f.zones.GetZoneByProviderID(ctx, id)
		if err != nil {
			if zone, err = f.zones.GetZoneByNodeName(ctx, name); err != nil {
				return none, err
			}
		}
		instance.Zone, instance.Region = zone.FailureDomain, zone.Region
	}
	return instance, nil
}
