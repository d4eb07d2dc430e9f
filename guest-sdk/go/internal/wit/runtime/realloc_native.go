//go:build !wasip1

package runtime

// Unpin does nothing outside of the sandbox.
func Unpin() {}
