package judge

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// A machine is what a provider says about the machine of a node.
type machine struct {
	// State is running, shutdown, gone, or unknown if the provider returned an error.
	State string `json:"state"`
	// Metadata is absent if the provider returned an error.
	Metadata *cloudprovider.InstanceMetadata `json:"metadata"`
	// Why has the errors of the provider.
	Why []string `json:"why"`
}

// describe asks what the node controller and the node lifecycle controller of k8s.io/cloud-provider
// ask, in the same order: where a provider lacks InstancesV2, Instances and Zones.
func describe(ctx context.Context, cloud cloudprovider.Interface, node *v1.Node) machine {
	of := machinesOf(cloud)
	m := machine{State: "unknown"}
	metadata, err := recovered(func() (*cloudprovider.InstanceMetadata, error) { return of.metadata(ctx, node) })
	if err != nil {
		m.Why = append(m.Why, err.Error())
	} else {
		m.Metadata = metadata
	}
	exists, err := recovered(func() (bool, error) { return of.exists(ctx, node) })
	if err != nil {
		m.Why = append(m.Why, err.Error())
		return m
	}
	if !exists {
		// The node controller does not ask for the metadata of a machine that is gone.
		m.State, m.Metadata = "gone", nil
		return m
	}
	shutdown, err := recovered(func() (bool, error) { return of.shutdown(ctx, node) })
	switch {
	case err != nil:
		m.Why = append(m.Why, err.Error())
	case shutdown:
		m.State = "shutdown"
	default:
		m.State = "running"
	}
	return m
}

// recovered makes an error of a panic, as the queues of Kubernetes' controllers do.
func recovered[T any](ask func() (T, error)) (answer T, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("panic: %v", why)
		}
	}()
	return ask()
}

// machines is what the controllers ask a provider about a node.
type machines interface {
	metadata(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error)
	exists(context.Context, *v1.Node) (bool, error)
	shutdown(context.Context, *v1.Node) (bool, error)
}

func machinesOf(cloud cloudprovider.Interface) machines {
	if instances, ok := cloud.InstancesV2(); ok {
		return instancesV2{instances}
	}
	return instancesV1{cloud}
}

type instancesV2 struct{ cloudprovider.InstancesV2 }

func (i instancesV2) metadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return i.InstanceMetadata(ctx, node)
}

func (i instancesV2) exists(ctx context.Context, node *v1.Node) (bool, error) {
	return i.InstanceExists(ctx, node)
}

func (i instancesV2) shutdown(ctx context.Context, node *v1.Node) (bool, error) {
	return i.InstanceShutdown(ctx, node)
}

type instancesV1 struct{ cloud cloudprovider.Interface }

var errNoInstances = errors.New("the provider has no instances")

// id is the provider ID of the node, or the one that the provider finds by the node's name.
func (i instancesV1) id(ctx context.Context, node *v1.Node) (string, error) {
	if node.Spec.ProviderID != "" {
		return node.Spec.ProviderID, nil
	}
	return cloudprovider.GetInstanceProviderID(ctx, i.cloud, types.NodeName(node.Name))
}

func (i instancesV1) metadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	instances, ok := i.cloud.Instances()
	if !ok {
		return nil, errNoInstances
	}
	id, err := i.id(ctx, node)
	if err != nil {
		return nil, err
	}
	name := types.NodeName(node.Name)
	addresses, err := either(
		func() ([]v1.NodeAddress, error) { return instances.NodeAddressesByProviderID(ctx, id) },
		func() ([]v1.NodeAddress, error) { return instances.NodeAddresses(ctx, name) },
	)
	if err != nil {
		return nil, err
	}
	kind, err := either(
		func() (string, error) { return instances.InstanceTypeByProviderID(ctx, id) },
		func() (string, error) { return instances.InstanceType(ctx, name) },
	)
	if err != nil {
		return nil, err
	}
	metadata := &cloudprovider.InstanceMetadata{ProviderID: id, InstanceType: kind, NodeAddresses: addresses}
	if zones, ok := i.cloud.Zones(); ok {
		zone, err := either(
			func() (cloudprovider.Zone, error) { return zones.GetZoneByProviderID(ctx, id) },
			func() (cloudprovider.Zone, error) { return zones.GetZoneByNodeName(ctx, name) },
		)
		if err != nil {
			return nil, err
		}
		metadata.Zone, metadata.Region = zone.FailureDomain, zone.Region
	}
	return metadata, nil
}

// either asks by the provider ID, and by the name of the node if that failed.
func either[T any](byID, byName func() (T, error)) (T, error) {
	found, err := byID()
	if err == nil {
		return found, nil
	}
	found, other := byName()
	if other != nil {
		return found, errors.Join(err, other)
	}
	return found, nil
}

func (i instancesV1) exists(ctx context.Context, node *v1.Node) (bool, error) {
	instances, ok := i.cloud.Instances()
	if !ok {
		return false, errNoInstances
	}
	id, err := i.id(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return instances.InstanceExistsByProviderID(ctx, id)
}

// shutdown asks by the provider ID of the node, which the node has after its initialisation.
func (i instancesV1) shutdown(ctx context.Context, node *v1.Node) (bool, error) {
	instances, ok := i.cloud.Instances()
	if !ok {
		return false, errNoInstances
	}
	id, err := i.id(ctx, node)
	if err != nil {
		return false, err
	}
	return instances.InstanceShutdownByProviderID(ctx, id)
}
