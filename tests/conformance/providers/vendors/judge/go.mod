module skysail.dev/tests/conformance/providers/vendors/judge

go 1.26.0

require (
	k8s.io/api v0.37.0
	k8s.io/apimachinery v0.37.0
	k8s.io/client-go v0.37.0
	k8s.io/cloud-provider v0.37.0
)
