//go:build wasip1

package identity

// The functions that the host calls.
import (
	_ "skysail.dev/provider/internal/sandbox"
	_ "skysail.dev/provider/internal/wit/exports/identity"
)
