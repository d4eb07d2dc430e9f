//go:build wasip1

package routes

// The functions that the host calls.
import _ "skysail.dev/provider/internal/wit/exports/routes"
