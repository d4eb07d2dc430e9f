//go:build wasip1

package volumelabels

// The functions that the host calls.
import _ "skysail.dev/provider/internal/wit/exports/volumelabels"
