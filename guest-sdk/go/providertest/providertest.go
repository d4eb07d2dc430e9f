// Package providertest is a host in memory, for native tests of a provider.
package providertest

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"skysail.dev/provider"
)

// Host answers what a provider asks of Skysail's host.
type Host struct {
	// CloudConfig is the text that the provider reads.
	CloudConfig string
	// Cloud answers the requests of the provider; a credential that a request names is the header
	// Skysail-Credential. Without it every request is unreachable.
	Cloud http.Handler
	// Fail returns why a request gets no response; nil for one that does.
	Fail func(provider.RawRequest) *provider.Failure

	mutex    sync.Mutex
	requests []provider.RawRequest
	events   []Event
	logs     []string
	cache    map[string][]byte
}

// Event is an Event that the provider emitted.
type Event struct {
	Warning         bool
	Reason, Message string
}

// New installs a host until the test ends. Tests with one do not run in parallel.
func New(t testing.TB) *Host {
	t.Helper()
	host := &Host{cache: map[string][]byte{}}
	before := provider.UseHost(host)
	t.Cleanup(func() { provider.UseHost(before) })
	return host
}

// Requests returns method and URL of each request so far.
func (h *Host) Requests() []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	var lines []string
	for _, request := range h.requests {
		lines = append(lines, request.Method+" "+request.URL)
	}
	return lines
}

// Sent returns each request so far.
func (h *Host) Sent() []provider.RawRequest {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return append([]provider.RawRequest(nil), h.requests...)
}

// Events returns the Events so far.
func (h *Host) Events() []Event {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return append([]Event(nil), h.events...)
}

// Logs returns level, message and fields of each line so far.
func (h *Host) Logs() []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return append([]string(nil), h.logs...)
}

// Config is [provider.Host]'s, as the methods below.
func (h *Host) Config() string { return h.CloudConfig }

func (h *Host) Send(requests []provider.RawRequest) []provider.RawAnswer {
	h.mutex.Lock()
	h.requests = append(h.requests, requests...)
	h.mutex.Unlock()
	answers := make([]provider.RawAnswer, 0, len(requests))
	for _, request := range requests {
		answers = append(answers, h.answer(request))
	}
	return answers
}

// refused is the host's refusal of a request that the contract calls malformed.
func refused(raw provider.RawRequest) *provider.Failure {
	malformed := func(format string, args ...any) *provider.Failure {
		return &provider.Failure{Kind: provider.FailureMalformed, Message: fmt.Sprintf(format, args...)}
	}
	if !slices.Contains(methods, raw.Method) {
		return malformed("the method must be one of %s", strings.Join(methods, ", "))
	}
	if why := refusedURL(raw.URL); why != "" {
		return malformed("%s: %s", raw.URL, why)
	}
	for _, header := range raw.Headers {
		name, value := strings.ToLower(header[0]), header[1]
		switch {
		case !headerName.MatchString(name):
			return malformed("the header name %q has a character that servers read in different ways", header[0])
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return malformed("the value of the header %s has a control character", name)
		case slices.Contains(hosts, name) || strings.HasPrefix(name, "proxy-"):
			return malformed("the host sets the header %s itself", name)
		case raw.Credential != "" && withoutCredential(name, value):
			return malformed("the header %s is not sent with a credential", name)
		}
	}
	return nil
}

// methods, hosts and the functions below are the rules of runtime/egress: the tests of both read
// guest-sdk/requests.json.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

var hosts = []string{
	"connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "te", "trailer", "transfer-encoding",
	"upgrade", "accept-encoding", "cookie", "cookie2", "x-http-method", "x-http-method-override", "x-method-override",
	"x-original-url", "x-original-uri", "x-rewrite-url",
}

var headerName = regexp.MustCompile("^[a-z0-9-]+$")

var hiddenDots = regexp.MustCompile("(?i)/(\\.|%2e)?%2e(/|$)|/%2e\\.(/|$)")

const urlBytesMax = 8 * 1024

func refusedURL(text string) string {
	address, err := url.Parse(text)
	switch {
	case len(text) > urlBytesMax:
		return "the URL is too long"
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == '\\' }):
		return "the URL has a space, a control character or a backslash"
	case err != nil:
		return err.Error()
	case address.Scheme != "http" && address.Scheme != "https" || address.Host == "" || address.Port() == "0":
		return "this is not an absolute http or https URL"
	case address.User != nil:
		return "the URL has user information"
	case hiddenDots.MatchString(address.EscapedPath()):
		return "the path has an encoded dot segment"
	}
	return ""
}

// withoutCredential are headers that a credential sets, or that choose how its echo would look.
func withoutCredential(name, value string) bool {
	switch name {
	case "authorization", "range", "accept-charset":
		return true
	case "accept":
		return strings.Contains(strings.ToLower(value), "charset")
	}
	return strings.HasSuffix(name, "-range") && name != "content-range"
}

func (h *Host) answer(raw provider.RawRequest) provider.RawAnswer {
	if failure := refused(raw); failure != nil {
		return provider.RawAnswer{Failure: failure}
	}
	if h.Fail != nil {
		if failure := h.Fail(raw); failure != nil {
			return provider.RawAnswer{Failure: failure}
		}
	}
	if h.Cloud == nil {
		return provider.RawAnswer{Failure: &provider.Failure{Kind: provider.FailureUnreachable, Message: "the test has no cloud"}}
	}
	request, err := http.NewRequest(raw.Method, raw.URL, bytes.NewReader(raw.Body))
	if err != nil {
		return provider.RawAnswer{Failure: &provider.Failure{Kind: provider.FailureMalformed, Message: err.Error()}}
	}
	for _, header := range raw.Headers {
		request.Header.Add(header[0], header[1])
	}
	if raw.Credential != "" {
		request.Header.Set("Skysail-Credential", raw.Credential)
	}
	recorder := httptest.NewRecorder()
	h.Cloud.ServeHTTP(recorder, request)
	result := recorder.Result()
	body, err := io.ReadAll(result.Body)
	if err != nil {
		return provider.RawAnswer{Failure: &provider.Failure{Kind: provider.FailureInterrupted, Message: err.Error()}}
	}
	response := provider.RawResponse{Status: result.StatusCode, Body: body}
	for name, values := range result.Header {
		for _, value := range values {
			response.Headers = append(response.Headers, [2]string{strings.ToLower(name), value})
		}
	}
	return provider.RawAnswer{Response: response}
}

func (h *Host) LogEnabled(slog.Level) bool { return true }

func (h *Host) Log(level slog.Level, message string, fields [][2]string) {
	line := level.String() + " " + message
	for _, field := range fields {
		line += " " + field[0] + "=" + field[1]
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.logs = append(h.logs, line)
}

func (h *Host) CacheGet(key string) ([]byte, bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	value, found := h.cache[key]
	return value, found
}

// CacheSet keeps the value to the end of the test: the host may drop one earlier, never later.
func (h *Host) CacheSet(key string, value []byte, _ time.Duration) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.cache[key] = value
	return true
}

func (h *Host) CacheCompareAndSet(key string, expected []byte, exists bool, value []byte, _ time.Duration) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	before, found := h.cache[key]
	if found != exists || !bytes.Equal(before, expected) {
		return false
	}
	h.cache[key] = value
	return true
}

func (h *Host) CacheDelete(key string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	delete(h.cache, key)
}

func (h *Host) EmitEvent(warning bool, reason, message string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.events = append(h.events, Event{warning, reason, message})
}
