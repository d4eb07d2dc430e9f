// Program vsphere answers questions with the Go provider of cloud-provider-vsphere.
package main

import (
	_ "k8s.io/cloud-provider-vsphere/pkg/cloudprovider/vsphere"

	"skysail.dev/tests/conformance/providers/vendors/judge"
)

func main() { judge.Serve("vsphere") }
