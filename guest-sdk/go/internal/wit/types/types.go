// Package types has the types of the contract that Go does not have.
//
// It stands in for go.bytecodealliance.org/pkg/wit/types, which cannot be linked without the
// package runtime beside it.
package types

// The tags of an option and of a result.
const (
	OptionNone uint8 = iota
	OptionSome
)

const (
	ResultOk uint8 = iota
	ResultErr
)

// Unit is no value.
type Unit struct{}

// Tuple2 is a pair.
type Tuple2[T0, T1 any] struct {
	F0 T0
	F1 T1
}

// Tuple3 is a triple.
type Tuple3[T0, T1, T2 any] struct {
	F0 T0
	F1 T1
	F2 T2
}

// Option is a value or none.
type Option[T any] struct {
	tag   uint8
	value T
}

// None is no value.
func None[T any]() Option[T] { return Option[T]{tag: OptionNone} }

// Some is a value.
func Some[T any](value T) Option[T] { return Option[T]{tag: OptionSome, value: value} }

// Tag is OptionNone or OptionSome.
func (o Option[T]) Tag() uint8 { return o.tag }

// IsNone reports whether there is no value.
func (o Option[T]) IsNone() bool { return o.tag == OptionNone }

// IsSome reports whether there is a value.
func (o Option[T]) IsSome() bool { return o.tag == OptionSome }

// Some returns the value.
func (o Option[T]) Some() T {
	if o.IsNone() {
		panic("the option has no value")
	}
	return o.value
}

// SomeOr returns the value, or another one where there is none.
func (o Option[T]) SomeOr(other T) T {
	if o.IsNone() {
		return other
	}
	return o.value
}

// Result is a value or an error.
type Result[T, E any] struct {
	tag   uint8
	value T
	err   E
}

// Ok is a value.
func Ok[T, E any](value T) Result[T, E] { return Result[T, E]{tag: ResultOk, value: value} }

// Err is an error.
func Err[T, E any](err E) Result[T, E] { return Result[T, E]{tag: ResultErr, err: err} }

// Tag is ResultOk or ResultErr.
func (r Result[T, E]) Tag() uint8 { return r.tag }

// IsOk reports whether there is a value.
func (r Result[T, E]) IsOk() bool { return r.tag == ResultOk }

// IsErr reports whether there is an error.
func (r Result[T, E]) IsErr() bool { return r.tag == ResultErr }

// Ok returns the value.
func (r Result[T, E]) Ok() T {
	if r.IsErr() {
		panic("the result is an error")
	}
	return r.value
}

// Err returns the error.
func (r Result[T, E]) Err() E {
	if r.IsOk() {
		panic("the result is no error")
	}
	return r.err
}
