//go:build wasip1

package loadbalancers

// The functions that the host calls.
import _ "skysail.dev/provider/internal/wit/exports/loadbalancers"
