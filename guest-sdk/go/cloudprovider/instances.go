package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"skysail.dev/provider"
	"skysail.dev/provider/httptransport"
)

// DescribeInstances asks the vendor's provider about each node as upstream's controllers do: by
// InstancesV2, else by the older interfaces Instances and Zones. For [provider.State] it
// asks whether the machine exists and is off, for [provider.Metadata] for everything else.
// Equal GETs are sent once.
func (c *Cloud) DescribeInstances(nodes provider.NodeSet, detail provider.Detail) ([]provider.Result[provider.Instance], error) {
	defer settle()
	// The nodes of a call are one page of the cluster's.
	machines := c.kube.useNodes(nodes, false)
	cloud, err := c.vendor()
	if err != nil {
		return nil, err
	}
	look, err := lookUp(cloud)
	if err != nil {
		return nil, err
	}
	results := make([]provider.Result[provider.Instance], len(machines))
	httptransport.ShareGets(func() {
		c.each(len(machines), func(index int) {
			// A panic in a goroutine would end the call without its text.
			defer func() {
				if reason := recover(); reason != nil {
					slog.Error("the cloud provider panicked", "reason", fmt.Sprint(reason), "stack", string(debug.Stack()))
					results[index].Err = provider.Internal("the cloud provider panicked: %v", reason)
				}
			}()
			results[index] = described(look, machines[index], detail)
		})
	})
	return results, nil
}

// each runs a function for each number, at the same time unless the vendor may not.
func (c *Cloud) each(count int, run func(index int)) {
	if c.options.Serial {
		for index := range count {
			run(index)
		}
		return
	}
	var group sync.WaitGroup
	for index := range count {
		group.Go(func() { run(index) })
	}
	group.Wait()
}

// looker is one of the two generations of interfaces about machines.
type looker interface {
	// state returns the machine with its power state; false where the machine does not exist.
	state(ctx context.Context, node *v1.Node) (instance provider.Instance, exists bool, err error)
	// metadata returns everything but the power state.
	metadata(ctx context.Context, node *v1.Node) (provider.Instance, error)
}

func described(look looker, node *v1.Node, detail provider.Detail) provider.Result[provider.Instance] {
	ctx := context.Background()
	if detail == provider.Metadata {
		instance, err := look.metadata(ctx, node)
		return provider.Result[provider.Instance]{Value: instance, Err: failed(err)}
	}
	instance, exists, err := look.state(ctx, node)
	if err == nil && !exists {
		err := provider.NotFound("the cloud has no machine for node %s (%s)", node.Name, node.Spec.ProviderID)
		return provider.Result[provider.Instance]{Err: err}
	}
	return provider.Result[provider.Instance]{Value: instance, Err: failed(err)}
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

// off is the answer about the power state: a vendor that cannot tell, or that has no machine any
// more, does not say that the machine is off.
func off(shutdown bool, err error) (bool, error) {
	if errors.Is(err, cloudprovider.NotImplemented) || errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	return shutdown, err
}

type second struct{ cloudprovider.InstancesV2 }

func (s second) state(ctx context.Context, node *v1.Node) (provider.Instance, bool, error) {
	exists, err := s.InstanceExists(ctx, node)
	if err != nil || !exists {
		return provider.Instance{}, false, err
	}
	shutdown, err := off(s.InstanceShutdown(ctx, node))
	if err != nil {
		return provider.Instance{}, true, err
	}
	instance := provider.Instance{ProviderID: node.Spec.ProviderID, Shutdown: shutdown}
	if instance.ProviderID == "" {
		described, err := s.metadata(ctx, node)
		if err != nil {
			return provider.Instance{}, true, err
		}
		instance.ProviderID, instance.Extra = described.ProviderID, described.Extra
	}
	return instance, true, nil
}

func (s second) metadata(ctx context.Context, node *v1.Node) (provider.Instance, error) {
	metadata, err := s.InstanceMetadata(ctx, node)
	if err != nil {
		return provider.Instance{}, err
	}
	if metadata == nil {
		return provider.Instance{}, fmt.Errorf("the cloud provider returned no metadata of node %s", node.Name)
	}
	instance := provider.Instance{
		ProviderID: metadata.ProviderID, InstanceType: metadata.InstanceType, Zone: metadata.Zone, Region: metadata.Region,
		Addresses: fromAddresses(metadata.NodeAddresses), Labels: metadata.AdditionalLabels,
	}
	if instance.ProviderID == "" {
		instance.ProviderID = node.Spec.ProviderID
	}
	if instance.ProviderID == "" {
		return provider.Instance{}, fmt.Errorf("the cloud provider returned no provider ID of node %s", node.Name)
	}
	return instance, nil
}

type first struct {
	cloud     cloudprovider.Interface
	instances cloudprovider.Instances
	// zones is nil where the cloud has none.
	zones cloudprovider.Zones
}

// id returns the node's provider ID, or makes one of the machine's ID.
func (f first) id(ctx context.Context, node *v1.Node) (string, error) {
	if node.Spec.ProviderID != "" {
		return node.Spec.ProviderID, nil
	}
	id, err := f.instances.InstanceID(ctx, types.NodeName(node.Name))
	if err != nil {
		return "", err
	}
	return f.cloud.ProviderName() + "://" + id, nil
}

func (f first) state(ctx context.Context, node *v1.Node) (provider.Instance, bool, error) {
	none := provider.Instance{}
	id, err := f.id(ctx, node)
	switch {
	case err == cloudprovider.InstanceNotFound:
		// As upstream: this very error, and no other one that has it inside.
		return none, false, nil
	case errors.Is(err, cloudprovider.NotImplemented):
		// A cloud without IDs: nothing is known, and nothing is deleted.
		return none, true, err
	case err != nil:
		return none, true, err
	}
	exists, err := f.instances.InstanceExistsByProviderID(ctx, id)
	if err != nil || !exists {
		return none, false, err
	}
	shutdown, err := off(f.instances.InstanceShutdownByProviderID(ctx, id))
	return provider.Instance{ProviderID: id, Shutdown: shutdown}, true, err
}

func (f first) metadata(ctx context.Context, node *v1.Node) (provider.Instance, error) {
	none, name := provider.Instance{}, types.NodeName(node.Name)
	id, err := f.id(ctx, node)
	withoutID := errors.Is(err, cloudprovider.NotImplemented)
	if err != nil && !withoutID {
		return none, err
	}
	instance := provider.Instance{ProviderID: id}
	if withoutID {
		instance.Extra = map[string]string{provider.WithoutProviderID: "true"}
	}
	addresses, err := either(withoutID,
		func() ([]v1.NodeAddress, error) { return f.instances.NodeAddressesByProviderID(ctx, id) },
		func() ([]v1.NodeAddress, error) { return f.instances.NodeAddresses(ctx, name) })
	if err != nil {
		return none, err
	}
	instance.Addresses = fromAddresses(addresses)
	instance.InstanceType, err = either(withoutID,
		func() (string, error) { return f.instances.InstanceTypeByProviderID(ctx, id) },
		func() (string, error) { return f.instances.InstanceType(ctx, name) })
	if err != nil || f.zones == nil {
		return instance, err
	}
	zone, err := either(withoutID,
		func() (cloudprovider.Zone, error) { return f.zones.GetZoneByProviderID(ctx, id) },
		func() (cloudprovider.Zone, error) { return f.zones.GetZoneByNodeName(ctx, name) })
	instance.Zone, instance.Region = zone.FailureDomain, zone.Region
	return instance, err
}

// either returns the answer by ID, or, as upstream does where that fails, the one by name. Where a
// vendor has one of the two functions only, the error is that function's.
func either[T any](withoutID bool, byID, byName func() (T, error)) (T, error) {
	var idError error
	if !withoutID {
		answer, err := byID()
		if err == nil {
			return answer, nil
		}
		idError = fmt.Errorf("by provider ID: %w", err)
	}
	answer, err := byName()
	switch {
	case err == nil:
		return answer, nil
	case idError != nil && errors.Is(err, cloudprovider.NotImplemented):
		return answer, idError
	case errors.Is(idError, cloudprovider.NotImplemented):
		idError = nil
	}
	return answer, errors.Join(idError, fmt.Errorf("by name: %w", err))
}
