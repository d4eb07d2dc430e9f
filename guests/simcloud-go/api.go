package main

import "skysail.dev/provider"

// pageEntries is the maximum of the API.
const pageEntries = "500"

// cloud is the API of the simulated cloud, as far as the provider uses it.
type cloud struct{ provider.API }

func load() (*cloud, error) { return provider.LoadConfig(parse) }

type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// list collects every record that matches the request's filters.
func list[T any](request *provider.Request) ([]T, error) {
	return provider.Pages(func(cursor string) ([]T, string, error) {
		response, err := request.Query("limit", pageEntries).QueryUnlessEmpty("cursor", cursor).Send()
		if err != nil {
			return nil, "", err
		}
		var found page[T]
		if err := response.JSON(&found); err != nil {
			return nil, "", err
		}
		if found.Items == nil {
			// Go reads an absent member as an empty one, and an empty list would mean that nothing exists.
			return nil, "", provider.Internal("%s", response.Message("the list has no items"))
		}
		return found.Items, found.Next, nil
	})
}

type machine struct {
	ID             string `json:"id"`
	Name           string `json:"name"`
	Zone           string `json:"zone"`
	Type           string `json:"type"`
	PrivateAddress string `json:"private_address"`
	PublicAddress  string `json:"public_address"`
	State          string `json:"state"`
}

type zone struct {
	Name   string `json:"name"`
	Region string `json:"region"`
}

type elasticIP struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Address string            `json:"address"`
	State   string            `json:"state"`
	Tags    map[string]string `json:"tags"`
}

type backend struct {
	Address string `json:"address"`
	Port    uint16 `json:"port"`
}

// settings are what may change of a virtual server.
type settings struct {
	RealServers            []backend `json:"real_servers"`
	AllowedSources         []string  `json:"allowed_sources"`
	SessionAffinitySeconds uint32    `json:"session_affinity_seconds"`
}

type virtualServer struct {
	ID        string            `json:"id,omitempty"`
	Name      string            `json:"name"`
	ElasticIP string            `json:"elastic_ip"`
	Protocol  string            `json:"protocol"`
	Port      uint16            `json:"port"`
	State     string            `json:"state,omitempty"`
	Tags      map[string]string `json:"tags"`
	settings
}

type cloudRoute struct {
	ID              string            `json:"id,omitempty"`
	Name            string            `json:"name,omitempty"`
	DestinationCIDR string            `json:"destination_cidr"`
	Instance        string            `json:"instance"`
	Blackhole       bool              `json:"blackhole,omitempty"`
	Tags            map[string]string `json:"tags,omitempty"`
}

func (c *cloud) zones() ([]zone, error) {
	return provider.Cached("zones", zonesTTL, func() ([]zone, error) {
		return list[zone](c.Get("v1", "zones"))
	})
}
