//go:build wasip1

package instances

// The functions that the host calls.
import _ "skysail.dev/provider/internal/wit/exports/instances"
