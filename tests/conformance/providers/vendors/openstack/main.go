// Program openstack answers questions with the Go provider of cloud-provider-openstack.
package main

import (
	_ "k8s.io/cloud-provider-openstack/pkg/openstack"

	"skysail.dev/tests/conformance/providers/vendors/judge"
)

func main() { judge.Serve("openstack") }
