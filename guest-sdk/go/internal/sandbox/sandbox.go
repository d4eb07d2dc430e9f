//go:build wasip1

// Package sandbox is the host in the sandbox, by the contract's imports.
package sandbox

import (
	"fmt"
	"log/slog"
	"time"

	"skysail.dev/provider"
	"skysail.dev/provider/internal/glue"

	"skysail.dev/provider/internal/wit/imports/skysail_provider_cache"
	"skysail.dev/provider/internal/wit/imports/skysail_provider_config"
	"skysail.dev/provider/internal/wit/imports/skysail_provider_events"
	"skysail.dev/provider/internal/wit/imports/skysail_provider_http"
	"skysail.dev/provider/internal/wit/imports/skysail_provider_log"
	witruntime "skysail.dev/provider/internal/wit/runtime"
	wt "skysail.dev/provider/internal/wit/types"
)

func init() {
	provider.UseHost(host{})
	slog.SetDefault(slog.New(provider.LogHandler()))
}

type host struct{}

type answer = wt.Result[skysail_provider_http.Response, skysail_provider_http.Failure]

func (host) Config() string { return witruntime.Import(skysail_provider_config.Text) }

func (host) Send(requests []provider.RawRequest) []provider.RawAnswer {
	raw := make([]skysail_provider_http.Request, 0, len(requests))
	for _, request := range requests {
		raw = append(raw, toRequest(request))
	}
	if len(raw) == 1 {
		return []provider.RawAnswer{fromResult(witruntime.Import(func() answer { return skysail_provider_http.Send(raw[0]) }))}
	}
	answers := make([]provider.RawAnswer, 0, len(requests))
	results := witruntime.Import(func() []answer { return skysail_provider_http.SendAll(raw) })
	for _, result := range results {
		answers = append(answers, fromResult(result))
	}
	return answers
}

func toRequest(request provider.RawRequest) skysail_provider_http.Request {
	raw := skysail_provider_http.Request{
		Method: glue.Text(request.Method), Url: glue.Text(request.URL), Body: wt.None[[]uint8](), Credential: wt.None[string](),
		TimeoutMs: timeout(request.Timeout),
	}
	for _, header := range request.Headers {
		raw.Headers = append(raw.Headers, wt.Tuple2[string, string]{F0: glue.Text(header[0]), F1: glue.Text(header[1])})
	}
	if request.Body != nil {
		raw.Body = wt.Some(request.Body)
	}
	if request.Credential != "" {
		raw.Credential = wt.Some(glue.Text(request.Credential))
	}
	return raw
}

// timeout is in milliseconds; 0 would set none.
func timeout(timeout time.Duration) uint32 {
	if timeout <= 0 {
		return 0
	}
	return uint32(min(max(timeout.Milliseconds(), 1), 1<<32-1))
}

func fromResult(result answer) provider.RawAnswer {
	if result.IsErr() {
		return provider.RawAnswer{Failure: fromFailure(result.Err())}
	}
	response := result.Ok()
	headers := make([][2]string, 0, len(response.Headers))
	for _, header := range response.Headers {
		headers = append(headers, [2]string{header.F0, header.F1})
	}
	return provider.RawAnswer{Response: provider.RawResponse{
		Status: int(response.Status), Headers: headers, Body: response.Body,
	}}
}

func fromFailure(failure skysail_provider_http.Failure) *provider.Failure {
	switch failure.Tag() {
	case skysail_provider_http.FailureForbidden:
		return &provider.Failure{Kind: provider.FailureForbidden, Message: failure.Forbidden()}
	case skysail_provider_http.FailureLimited:
		return &provider.Failure{Kind: provider.FailureLimited, Message: failure.Limited()}
	case skysail_provider_http.FailureMalformed:
		return &provider.Failure{Kind: provider.FailureMalformed, Message: failure.Malformed()}
	case skysail_provider_http.FailureUnreachable:
		return &provider.Failure{Kind: provider.FailureUnreachable, Message: failure.Unreachable()}
	case skysail_provider_http.FailureTls:
		return &provider.Failure{Kind: provider.FailureTLS, Message: failure.Tls()}
	case skysail_provider_http.FailureInterrupted:
		return &provider.Failure{Kind: provider.FailureInterrupted, Message: failure.Interrupted()}
	case skysail_provider_http.FailureTimeout:
		return &provider.Failure{Kind: provider.FailureTimeout}
	case skysail_provider_http.FailureTooLarge:
		message := ""
		if bytes := failure.TooLarge(); bytes > 0 {
			message = fmt.Sprintf("%d bytes", bytes)
		}
		return &provider.Failure{Kind: provider.FailureTooLarge, Message: message}
	case skysail_provider_http.FailureCredentialRefused:
		return &provider.Failure{Kind: provider.FailureCredentialRefused, Message: failure.CredentialRefused()}
	case skysail_provider_http.FailureCredentialUnavailable:
		return &provider.Failure{Kind: provider.FailureCredentialUnavailable, Message: failure.CredentialUnavailable()}
	}
	other := failure.Other()
	return &provider.Failure{Kind: provider.FailureKind(other.F0), Message: other.F1}
}

func toLevel(level slog.Level) skysail_provider_log.Level {
	switch {
	case level < slog.LevelDebug:
		return skysail_provider_log.LevelTrace
	case level < slog.LevelInfo:
		return skysail_provider_log.LevelDebug
	case level < slog.LevelWarn:
		return skysail_provider_log.LevelInfo
	case level < slog.LevelError:
		return skysail_provider_log.LevelWarn
	}
	return skysail_provider_log.LevelError
}

func (host) LogEnabled(level slog.Level) bool { return skysail_provider_log.Enabled(toLevel(level)) }

func (host) Log(level slog.Level, message string, fields [][2]string) {
	pairs := make([]wt.Tuple2[string, string], 0, len(fields))
	for _, field := range fields {
		pairs = append(pairs, wt.Tuple2[string, string]{F0: glue.Text(field[0]), F1: glue.Text(field[1])})
	}
	skysail_provider_log.Write(toLevel(level), glue.Text(message), pairs)
}

func milliseconds(ttl time.Duration) uint64 { return uint64(max(ttl.Milliseconds(), 0)) }

func (host) CacheGet(key string) ([]byte, bool) {
	found := witruntime.Import(func() wt.Option[[]uint8] { return skysail_provider_cache.Get(glue.Text(key)) })
	if found.IsNone() {
		return nil, false
	}
	return found.Some(), true
}

func (host) CacheSet(key string, value []byte, ttl time.Duration) bool {
	return skysail_provider_cache.Set(glue.Text(key), value, milliseconds(ttl))
}

func (host) CacheCompareAndSet(key string, expected []byte, exists bool, value []byte, ttl time.Duration) bool {
	before := wt.None[[]uint8]()
	if exists {
		before = wt.Some(expected)
	}
	return skysail_provider_cache.CompareAndSet(glue.Text(key), before, value, milliseconds(ttl))
}

func (host) CacheDelete(key string) { skysail_provider_cache.Delete(glue.Text(key)) }

func (host) EmitEvent(warning bool, reason, message string) {
	kind := skysail_provider_events.KindNormal
	if warning {
		kind = skysail_provider_events.KindWarning
	}
	skysail_provider_events.Emit(kind, glue.Text(reason), glue.Text(message))
}
