//go:build wasip1

package inventory

// The functions that the host calls.
import _ "skysail.dev/provider/internal/wit/exports/inventory"
