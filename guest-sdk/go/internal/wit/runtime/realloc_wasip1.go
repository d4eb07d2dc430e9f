package runtime

import (
	"runtime"
	"runtime/debug"
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

func init() {
	isInitialized = true
	debug.SetGCPercent(off)
}

// off stops the collector. While the host writes into the memory of a component, the component may
// call no import; Go's collector reads clocks and polls when it begins and ends, and the call would
// trap. The collector therefore runs only in Go code between an export and its imports.
const off = -1

// collects is the collector's setting in Go code.
var collects = 100

// Enter lets the collector run: the host has written the arguments of an export. The result ends it
// before the export returns.
func Enter() (leave func()) {
	debug.SetGCPercent(collects)
	return func() { collects = debug.SetGCPercent(off) }
}

// Import runs a call of the host without the collector. SetGCPercent waits for a
// collection that has begun.
func Import[T any](call func() T) T {
	before := debug.SetGCPercent(off)
	result := call()
	debug.SetGCPercent(before)
	return result
}

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
	// Go's allocator reads the monotonic clock; wasmtime's adapter then answers with its last reading.
	pauseClock(true)
	memory := Allocate(&received, size, align)
	pauseClock(false)
	return memory
}
