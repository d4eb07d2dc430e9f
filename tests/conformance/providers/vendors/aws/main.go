// Program aws answers questions with the Go provider of cloud-provider-aws.
package main

import (
	_ "k8s.io/cloud-provider-aws/pkg/providers/v1"

	"skysail.dev/tests/conformance/providers/vendors/judge"
)

func main() { judge.Serve("aws") }
