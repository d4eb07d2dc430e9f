package provider

import (
	"errors"
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

// AsError returns the first contract error of a chain, with the text of the whole chain.
func AsError(err error) *Error {
	var known *Error
	if !errors.As(err, &known) {
		return &Error{Code: CodeInternal, Message: err.Error()}
	}
	return &Error{Code: known.Code, Message: err.Error(), After: known.After}
}

// IsNotFound reports whether the error says that the object does not exist.
func IsNotFound(err error) bool {
	var known *Error
	return errors.As(err, &known) && known.Code == CodeNotFound
}

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
