package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

type instances struct {
	cloud *cloud
}

func (i *instances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	calls.WithLabelValues("InstanceExists").Inc()
	_, err := i.find(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (i *instances) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	calls.WithLabelValues("InstanceShutdown").Inc()
	found, err := i.find(ctx, node)
	if err != nil {
		return false, err
	}
	return found.State == "stopped", nil
}

func (i *instances) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	calls.WithLabelValues("InstanceMetadata").Inc()
	found, err := i.find(ctx, node)
	if err != nil {
		return nil, err
	}
	region, err := i.cloud.region(ctx, found.Zone)
	if err != nil {
		return nil, err
	}
	addresses := []v1.NodeAddress{
		{Type: v1.NodeHostName, Address: found.Name},
		{Type: v1.NodeInternalIP, Address: found.PrivateAddress},
	}
	if found.PublicAddress != nil {
		addresses = append(addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: *found.PublicAddress})
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:    providerName + "://" + found.ID,
		InstanceType:  found.Type,
		NodeAddresses: addresses,
		Zone:          found.Zone,
		Region:        region,
	}, nil
}

// find looks up the machine by the provider ID, or by the name if the node has no provider ID yet.
func (i *instances) find(ctx context.Context, node *v1.Node) (*machine, error) {
	if node.Spec.ProviderID != "" {
		id, ours := strings.CutPrefix(node.Spec.ProviderID, providerName+"://")
		if !ours {
			return nil, fmt.Errorf("node %s has the provider ID %q of another provider", node.Name, node.Spec.ProviderID)
		}
		var found machine
		err := i.cloud.send(ctx, http.MethodGet, "/v1/instances/"+url.PathEscape(id), "", nil, &found)
		if errors.Is(err, errNotFound) {
			return nil, cloudprovider.InstanceNotFound
		}
		return &found, err
	}
	found, err := list[machine](ctx, i.cloud, "/v1/instances", url.Values{"name": {node.Name}})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, cloudprovider.InstanceNotFound
	}
	return &found[0], nil
}
