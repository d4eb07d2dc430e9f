// Package runtime is what the generated bindings need at run time.
//
// It stands in for go.bytecodealliance.org/pkg/wit/runtime: version 0.2.1 of that package panics on
// a size that is no multiple of the alignment, and its allocator traps where Go's
// collector begins or ends in it.
package runtime

import (
	"runtime"
	"unsafe"
)

// Handle is a resource of the host.
type Handle struct {
	value int32
}

// MakeHandle owns a handle.
func MakeHandle(value int32) *Handle {
	if value == 0 {
		panic("nil handle")
	}
	return &Handle{value}
}

// Use returns the handle, which stays owned.
func (h *Handle) Use() int32 {
	if h.value == 0 {
		panic("nil handle")
	}
	return h.value
}

// Take returns the handle and gives it up.
func (h *Handle) Take() int32 {
	value := h.Use()
	h.value = 0
	return value
}

// TakeOrNil is Take without a panic.
func (h *Handle) TakeOrNil() int32 {
	value := h.value
	h.value = 0
	return value
}

// Set owns a handle from now on.
func (h *Handle) Set(value int32) {
	if value == 0 || h.value != 0 {
		panic("nil handle, or handle already set")
	}
	h.value = value
}

// Allocate returns memory that the collector keeps until the pinner ends.
func Allocate(pinner *runtime.Pinner, size, align uintptr) unsafe.Pointer {
	if size == 0 {
		return nil
	}
	var memory unsafe.Pointer
	if align > 4 {
		memory = unsafe.Pointer(unsafe.SliceData(make([]uint64, (size+7)/8)))
	} else {
		memory = unsafe.Pointer(unsafe.SliceData(make([]uint32, (size+3)/4)))
	}
	pinner.Pin(memory)
	return memory
}
