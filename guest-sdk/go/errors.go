package provider

import (
	"fmt"
	"time"
)

// Code is the host's reaction to an error.
type Code uint8

// The contract's errors, in its order; `wit/v0.1.0/types.wit` says what the host does about each.
const (
	CodeNotFound Code = iota
	CodeImplementedElsewhere
	CodeUnsupported
	CodeInvalid
	CodeDenied
	CodeExhausted
	CodeRetryAfter
	CodeUnavailable
	CodeInternal
)

// Error is an error of the contract. An error of another type counts as CodeInternal.
type Error struct {
	Code    Code
	Message string
	// After is the wait of CodeRetryAfter.
	After time.Duration
}

func (e *Error) Error() string { return e.Message }

// AsError returns the contract error of an error, with the error's whole text; nil for nil. Of
// several errors that are joined, it is the worst, and CodeNotFound only where all of them
// are: it may delete a node.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	worst := worstOf(err)
	return &Error{Code: worst.Code, Message: err.Error(), After: worst.After}
}

// worstOf walks through the tree of a wrapped error.
func worstOf(err error) *Error {
	switch err := err.(type) {
	case *Error:
		return err
	case *Failure:
		return err.contractError()
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			return worstOf(inner)
		}
	case interface{ Unwrap() []error }:
		var worst *Error
		for _, inner := range err.Unwrap() {
			if one := worstOf(inner); worst == nil || isWorse(one, worst) {
				worst = one
			}
		}
		if worst != nil {
			return worst
		}
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}

// isWorse orders errors: NotFound, an outage, the longest wait, what a wait does not mend.
func isWorse(one, other *Error) bool {
	rank := func(e *Error) int {
		switch e.Code {
		case CodeNotFound:
			return 0
		case CodeUnavailable:
			return 1
		case CodeRetryAfter:
			return 2
		}
		return 3
	}
	if rank(one) != rank(other) {
		return rank(one) > rank(other)
	}
	return one.Code == CodeRetryAfter && one.After > other.After
}

// IsNotFound reports whether the error says that the object does not exist.
func IsNotFound(err error) bool { return err != nil && AsError(err).Code == CodeNotFound }

// NotFound says that the object does not exist. About a machine, it deletes the node.
func NotFound(format string, args ...any) error { return failure(CodeNotFound, format, args) }

// ImplementedElsewhere says that another program serves this Service.
func ImplementedElsewhere(format string, args ...any) error {
	return failure(CodeImplementedElsewhere, format, args)
}

// Unsupported says that the cloud cannot do it.
func Unsupported(format string, args ...any) error { return failure(CodeUnsupported, format, args) }

// Invalid says that the object or the cloud-config has to be changed first.
func Invalid(format string, args ...any) error { return failure(CodeInvalid, format, args) }

// Denied says that the cloud refuses the credential or the rights.
func Denied(format string, args ...any) error { return failure(CodeDenied, format, args) }

// Exhausted says that a quota is used up.
func Exhausted(format string, args ...any) error { return failure(CodeExhausted, format, args) }

// Unavailable says that the cloud does not serve now.
func Unavailable(format string, args ...any) error { return failure(CodeUnavailable, format, args) }

// Internal says that the provider does not understand what happened.
func Internal(format string, args ...any) error { return failure(CodeInternal, format, args) }

// RetryAfter asks the host to call again after a wait: the cloud is busy, or still at work.
func RetryAfter(after time.Duration, format string, args ...any) error {
	return &Error{Code: CodeRetryAfter, Message: fmt.Sprintf(format, args...), After: after}
}

func failure(code Code, format string, args []any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
