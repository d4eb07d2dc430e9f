package runtime

import (
	"runtime"
	"unsafe"
)

// received is what the host wrote into this memory since the last call of Unpin.
var received runtime.Pinner

// Unpin gives up what the host wrote; the generated bindings call it after they copied it.
func Unpin() { received.Unpin() }

// early has what is needed before Go's runtime is there: the adapter's state and its stack, 64 KiB
// each. It is never freed.
var (
	early     [256 << 10]byte
	earlyUsed uintptr
)

var isInitialized = false

func init() { isInitialized = true }

//go:wasmimport wasi_snapshot_preview1 adapter_monotonic_clock_set_paused
func pauseClock(paused bool)

//go:wasmexport cabi_realloc
func realloc(old unsafe.Pointer, oldSize, align, size uintptr) unsafe.Pointer {
	if old != nil || oldSize != 0 {
		panic("the host grows a value that it has written")
	}
	if !isInitialized {
		start := uintptr(unsafe.Pointer(&early))
		at := (start + earlyUsed + align - 1) &^ (align - 1)
		earlyUsed = at + size - start
		if earlyUsed > uintptr(len(early)) {
			panic("no memory before Go's runtime starts")
		}
		return unsafe.Pointer(at)
	}
	// The collector may run now and reads the clock. No import may be called before realloc returns,
	// so that the adapter answers with its last reading.
	pauseClock(true)
	memory := Allocate(&received, size, align)
	pauseClock(false)
	return memory
}
