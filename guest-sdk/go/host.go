package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// Host is what a provider reaches outside of itself. In the sandbox it is Skysail's host; a native
// test installs one of package providertest.
type Host interface {
	Config() string
	Send(requests []RawRequest) []RawAnswer
	LogEnabled(level slog.Level) bool
	Log(level slog.Level, message string, fields [][2]string)
	CacheGet(key string) ([]byte, bool)
	CacheSet(key string, value []byte, ttl time.Duration) bool
	CacheCompareAndSet(key string, expected []byte, exists bool, value []byte, ttl time.Duration) bool
	CacheDelete(key string)
	EmitEvent(warning bool, reason, message string)
}

var current Host = absent{}

// UseHost installs a host and returns the one before. The sandbox and package providertest call it.
func UseHost(host Host) (before Host) {
	before, current = current, host
	return before
}

// Config returns the cloud-config of this call.
func Config() string { return current.Config() }

// Event emits an Event about the Service of this call; in a call about nodes or routes, about the
// provider.
func Event(reason, format string, args ...any) {
	current.EmitEvent(false, reason, fmt.Sprintf(format, args...))
}

// WarningEvent emits an Event of type Warning.
func WarningEvent(reason, format string, args ...any) {
	current.EmitEvent(true, reason, fmt.Sprintf(format, args...))
}

// CacheGet returns a value that an earlier call set. The host may drop a value at any time.
func CacheGet[T any](key string) (value T, found bool) {
	bytes, found := current.CacheGet(key)
	return cached[T](bytes, found)
}

// cached reads a value whole or not at all: another release may have set it.
func cached[T any](bytes []byte, found bool) (T, bool) {
	var value, none T
	if !found || json.Unmarshal(bytes, &value) != nil {
		return none, false
	}
	return value, true
}

// CacheSet keeps a small value for later calls; false where the host does not keep it.
func CacheSet[T any](key string, value T, ttl time.Duration) bool {
	bytes, err := json.Marshal(value)
	return err == nil && current.CacheSet(key, bytes, ttl)
}

// CacheDelete removes a value.
func CacheDelete(key string) { current.CacheDelete(key) }

// changesMax bounds the tries of [CacheUpdate].
const changesMax = 16

// CacheUpdate changes a value that calls at the same time may change, too; false where the host did
// not keep the change. `change` gets false where there is no value.
func CacheUpdate[T any](key string, ttl time.Duration, change func(value T, found bool) T) (T, bool) {
	var changed T
	for range changesMax {
		before, exists := current.CacheGet(key)
		changed = change(cached[T](before, exists))
		after, err := json.Marshal(changed)
		if err != nil {
			return changed, false
		}
		if current.CacheCompareAndSet(key, before, exists, after, ttl) {
			return changed, true
		}
	}
	return changed, false
}

// Cached returns the value of this key, which `load` makes where the host has none.
func Cached[T any](key string, ttl time.Duration, load func() (T, error)) (T, error) {
	if value, found := CacheGet[T](key); found {
		return value, nil
	}
	value, err := load()
	if err == nil {
		CacheSet(key, value, ttl)
	}
	return value, err
}

// LogHandler is the host's log. In the sandbox it is slog's default.
func LogHandler() slog.Handler { return logHandler{} }

type logHandler struct {
	prefix string
	fields [][2]string
}

func (logHandler) Enabled(_ context.Context, level slog.Level) bool { return current.LogEnabled(level) }

func (h logHandler) Handle(_ context.Context, record slog.Record) error {
	fields := append([][2]string(nil), h.fields...)
	record.Attrs(func(attr slog.Attr) bool {
		fields = appendField(fields, h.prefix, attr)
		return true
	})
	current.Log(record.Level, record.Message, fields)
	return nil
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := append([][2]string(nil), h.fields...)
	for _, attr := range attrs {
		fields = appendField(fields, h.prefix, attr)
	}
	return logHandler{h.prefix, fields}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return logHandler{h.prefix + name + ".", h.fields}
}

func appendField(fields [][2]string, prefix string, attr slog.Attr) [][2]string {
	value := attr.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		if attr.Key == "" {
			return fields
		}
		return append(fields, [2]string{prefix + attr.Key, value.String()})
	}
	if attr.Key != "" {
		prefix += attr.Key + "."
	}
	for _, member := range value.Group() {
		fields = appendField(fields, prefix, member)
	}
	return fields
}

// absent is the host of a native program that has none.
type absent struct{}

const absentMessage = "this function calls Skysail's host, which exists only in the sandbox: a native test installs one with providertest.New(t)"

func (absent) Config() string                              { panic(absentMessage) }
func (absent) Send([]RawRequest) []RawAnswer               { panic(absentMessage) }
func (absent) LogEnabled(slog.Level) bool                  { panic(absentMessage) }
func (absent) Log(slog.Level, string, [][2]string)         { panic(absentMessage) }
func (absent) CacheGet(string) ([]byte, bool)              { panic(absentMessage) }
func (absent) CacheSet(string, []byte, time.Duration) bool { panic(absentMessage) }
func (absent) CacheDelete(string)                          { panic(absentMessage) }
func (absent) EmitEvent(bool, string, string)              { panic(absentMessage) }
func (absent) CacheCompareAndSet(string, []byte, bool, []byte, time.Duration) bool {
	panic(absentMessage)
}
