// The provider for the simulated cloud of `skysail dev`, in Go: the interfaces of guests/simcloud
// by the same requests, as an example for authors.
package main

import (
	"strings"

	"skysail.dev/provider"
	"skysail.dev/provider/export/identity"
	"skysail.dev/provider/export/instances"
	"skysail.dev/provider/export/inventory"
	"skysail.dev/provider/export/loadbalancers"
	"skysail.dev/provider/export/routes"
	"skysail.dev/provider/export/volumelabels"
)

func init() {
	identity.Export(simCloud{})
	instances.Export(simCloud{})
	loadbalancers.Export(simCloud{})
	inventory.Export(simCloud{})
	routes.Export(simCloud{})
	volumelabels.Export(simCloud{})
}

func main() {}

const (
	scheme  = "simcloud"
	version = "0.1.0"
)

// simCloud implements the interfaces.
type simCloud struct{}

func (simCloud) Describe() provider.Info {
	return provider.Info{Name: scheme, Version: version, Description: "Skysail's simulated cloud, in Go"}
}

func (simCloud) CheckConfig(text string) []provider.Problem {
	_, problems := parse(text)
	return problems
}

func (simCloud) Origins(text string) []string {
	cloud, problems := parse(text)
	if provider.HasFatal(problems) {
		return nil
	}
	return []string{cloud.Origin()}
}

// parse reads the cloud-config: `[Global] endpoint = URL`; a zone, which the provider in Rust needs
// for upstream's Zones, is accepted.
func parse(text string) (*cloud, []provider.Problem) {
	ini := provider.ParseINI(text)
	endpoint := ini.Required("Global", "endpoint")
	if endpoint != "" && !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") {
		ini.Refuse("Global", "endpoint", "%q is not a URL such as http://127.0.0.1:8088", endpoint)
	}
	ini.Optional("Global", "zone")
	return &cloud{provider.API{Endpoint: endpoint, Credential: "api"}}, ini.Problems()
}
