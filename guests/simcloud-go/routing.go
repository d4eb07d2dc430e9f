package main

import (
	"fmt"
	"slices"

	"skysail.dev/provider"
)

// ListRoutes makes one list: the host finds the node of a machine.
func (simCloud) ListRoutes(cluster string) ([]provider.Route, error) {
	_, present, err := routesOf(cluster)
	if err != nil {
		return nil, err
	}
	routes := make([]provider.Route, 0, len(present))
	for _, route := range present {
		routes = append(routes, provider.Route{
			Name: route.ID, Target: provider.Target{ProviderID: scheme + "://" + route.Instance},
			DestinationCIDR: route.DestinationCIDR, Blackhole: route.Blackhole,
		})
	}
	return routes, nil
}

// routesOf returns the routes that the cluster owns.
func routesOf(cluster string) (*cloud, []cloudRoute, error) {
	cloud, err := load()
	if err != nil {
		return nil, nil, err
	}
	present, err := owned[cloudRoute](cloud, "routes", cluster, "")
	return cloud, present, err
}

// CreateRoutes makes one list, a second one where a node has no provider ID, and one request for
// each missing route. A route of this cluster to another machine is deleted first: pod CIDRs move
// when a node is created again.
func (simCloud) CreateRoutes(cluster string, wanted []provider.NewRoute) ([]error, error) {
	cloud, present, err := routesOf(cluster)
	if err != nil {
		return nil, err
	}
	targets, errors, err := cloud.targets(wanted)
	if err != nil {
		return nil, err
	}
	var removals, creations []*provider.Request
	var places []int
	for index, route := range wanted {
		if errors[index] != nil {
			continue
		}
		instance, there := targets[index], false
		for _, old := range present {
			if old.DestinationCIDR != route.DestinationCIDR {
				continue
			}
			if old.Instance == instance {
				there = true
			} else {
				removals = append(removals, cloud.Delete("v1", "routes", old.ID))
			}
		}
		if there {
			continue
		}
		name := route.NameHint
		if name == "" {
			name = route.DestinationCIDR
		}
		key := fmt.Sprintf("%s/%s/%s", cluster, route.DestinationCIDR, instance)
		creations = append(creations, cloud.Post("v1", "routes").Header("idempotency-key", key).JSON(cloudRoute{
			Name: name, DestinationCIDR: route.DestinationCIDR, Instance: instance, Tags: map[string]string{clusterTag: cluster},
		}))
		places = append(places, index)
	}
	for _, removed := range provider.SendAll(removals...) {
		if err := provider.Absent(removed.Err); err != nil {
			return nil, err
		}
	}
	for index, created := range provider.SendAll(creations...) {
		errors[places[index]] = created.Err
	}
	return errors, nil
}

// targets returns the ID of the machine of each route: by the node's provider ID, else by the
// node's name.
func (c *cloud) targets(wanted []provider.NewRoute) (ids []string, errors []error, err error) {
	byName := map[string]string{}
	if slices.ContainsFunc(wanted, func(route provider.NewRoute) bool { return route.ProviderID == "" }) {
		machines, err := list[machine](c.Get("v1", "instances"))
		if err != nil {
			return nil, nil, err
		}
		for _, machine := range machines {
			byName[machine.Name] = machine.ID
		}
	}
	ids, errors = make([]string, len(wanted)), make([]error, len(wanted))
	for index, route := range wanted {
		if route.ProviderID != "" {
			ids[index], errors[index] = provider.ParseProviderID(scheme, route.ProviderID)
		} else if ids[index] = byName[route.Node]; ids[index] == "" {
			errors[index] = provider.NotFound("the cloud has no machine %q", route.Node)
		}
	}
	return ids, errors, nil
}

// DeleteRoutes makes one list, and one request for each route. A missing route is a
// success. A route of another cluster is refused, because the name comes from the
// host and proves no ownership.
func (simCloud) DeleteRoutes(cluster string, routes []provider.Route) ([]error, error) {
	cloud, present, err := routesOf(cluster)
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, route := range present {
		ours[route.ID] = true
	}
	requests := make([]*provider.Request, 0, len(routes))
	for _, route := range routes {
		method := "GET"
		if ours[route.Name] {
			method = "DELETE"
		}
		requests = append(requests, cloud.Request(method, "v1", "routes", route.Name))
	}
	errors := make([]error, len(routes))
	for index, answer := range provider.SendAll(requests...) {
		errors[index] = provider.Absent(answer.Err)
		if answer.Err == nil && !ours[routes[index].Name] {
			errors[index] = provider.Denied("route %q is not of cluster %q", routes[index].Name, cluster)
		}
	}
	return errors, nil
}
