// The provider aws is the code of k8s.io/cloud-provider-aws/pkg/providers/v1, unchanged.
package main

import (
	_ "k8s.io/cloud-provider-aws/pkg/providers/v1" // registers "aws"

	"skysail.dev/provider"
	"skysail.dev/provider/cloudprovider"
	"skysail.dev/provider/export/identity"
	"skysail.dev/provider/export/instances"
	"skysail.dev/provider/export/loadbalancers"
	"skysail.dev/provider/export/routes"
)

// Remove the exports of interfaces that the vendor's provider does not have.
func init() {
	options.Info = provider.Info{Name: "aws", Version: "1.37.1", Description: "k8s.io/cloud-provider-aws/pkg/providers/v1"}
	options.Registered = "aws"
	cloud := cloudprovider.New(options)
	identity.Export(cloud)
	instances.Export(cloud)
	loadbalancers.Export(cloud)
	routes.Export(cloud)
}

func main() {}
