// Package httptransport sends the requests of Go's net/http through Skysail's host, for providers
// that use an SDK of their cloud.
//
// It makes a component about twice as large as package provider alone does, because net/http comes
// with its own TLS and HTTP/2.
package httptransport

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"skysail.dev/provider"
)

// Transport is an http.RoundTripper. The zero value sends requests without
// a credential of the host.
//
// Requests that several goroutines make at the same time leave at the same time. Redirects are
// http.Client's to follow: each is a request of its own to the host.
type Transport struct {
	// Credential is the name of the operator's credential that the host adds; empty for none. The
	// request's own Authorization, Range and If-Range are then not sent: the host refuses them.
	Credential string
	// SetByCredential are other headers that the credential sets, such as X-Auth-Token, and that the
	// client sends, too: these are not sent.
	SetByCredential []string
}

// own are headers that the host sets itself: a request with one of them would be malformed.
var own = map[string]bool{
	"Accept-Encoding": true, "Connection": true, "Content-Length": true, "Cookie": true, "Expect": true, "Host": true,
	"Keep-Alive": true, "Te": true, "Transfer-Encoding": true, "Upgrade": true,
}

// RoundTrip sends one request.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	raw, err := t.raw(request)
	if err != nil {
		return nil, err
	}
	answer := gathered.shared(raw)
	if answer.Failure != nil {
		return nil, answer.Failure
	}
	response := answer.Response
	headers := http.Header{}
	for _, header := range response.Headers {
		headers.Add(header[0], header[1])
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", response.Status, http.StatusText(response.Status)), StatusCode: response.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: headers, Uncompressed: true, Request: request,
		Body: io.NopCloser(bytes.NewReader(response.Body)), ContentLength: int64(len(response.Body)),
	}, nil
}

func (t *Transport) raw(request *http.Request) (provider.RawRequest, error) {
	// The client has made an Authorization of the user information.
	address := *request.URL
	address.User, address.Fragment = nil, ""
	raw := provider.RawRequest{Method: request.Method, URL: address.String(), Credential: t.Credential}
	if raw.Method == "" {
		raw.Method = http.MethodGet
	}
	if request.Body != nil {
		defer request.Body.Close()
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return raw, fmt.Errorf("cannot read the body of the request: %w", err)
		}
		if len(body) > 0 {
			raw.Body = body
		}
	}
	for name, values := range request.Header {
		if t.isDropped(http.CanonicalHeaderKey(name)) {
			continue
		}
		for _, value := range values {
			raw.Headers = append(raw.Headers, [2]string{strings.ToLower(name), value})
		}
	}
	if err := request.Context().Err(); err != nil {
		return raw, err
	}
	if deadline, ok := request.Context().Deadline(); ok {
		raw.Timeout = max(time.Until(deadline), time.Millisecond)
	}
	return raw, nil
}

func (t *Transport) isDropped(name string) bool {
	if own[name] || strings.HasPrefix(name, "Proxy-") {
		return true
	}
	if t.Credential == "" {
		return false
	}
	is := func(set string) bool { return http.CanonicalHeaderKey(set) == name }
	return name == "Authorization" || name == "Range" || name == "If-Range" || slices.ContainsFunc(t.SetByCredential, is)
}

// ShareGets runs a function in which equal GETs without a body are sent once, until one
// fails: all get the first one's answer. It is for code that asks for the same machine
// several times in one call.
func ShareGets(run func()) {
	gathered.mutex.Lock()
	before := gathered.gets
	gathered.gets = map[string]*waiting{}
	gathered.mutex.Unlock()
	defer func() {
		gathered.mutex.Lock()
		gathered.gets = before
		gathered.mutex.Unlock()
	}()
	run()
}

// gather collects the requests of goroutines until each of them waits.
type gather struct {
	mutex   sync.Mutex
	waiting []*waiting
	sends   bool
	// gets has the GETs whose answers are shared; nil where none are.
	gets map[string]*waiting
}

type waiting struct {
	raw    provider.RawRequest
	answer provider.RawAnswer
	done   chan struct{}
}

var gathered gather

// shared sends a request, or waits for the answer to an equal one.
func (g *gather) shared(raw provider.RawRequest) provider.RawAnswer {
	one := &waiting{raw: raw, done: make(chan struct{})}
	if raw.Method != http.MethodGet || raw.Body != nil || !g.shares() {
		return g.send(one)
	}
	key := raw.URL + "\n" + raw.Credential + "\n" + fmt.Sprint(sorted(raw.Headers))
	g.mutex.Lock()
	first := g.gets[key]
	if first == nil && g.gets != nil {
		g.gets[key] = one
	}
	g.mutex.Unlock()
	if first != nil {
		<-first.done
		return first.answer
	}
	answer := g.send(one)
	if answer.Failure != nil || answer.Response.Status >= http.StatusBadRequest {
		// The client may repeat the request.
		g.mutex.Lock()
		if g.gets[key] == one {
			delete(g.gets, key)
		}
		g.mutex.Unlock()
	}
	return answer
}

func (g *gather) shares() bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.gets != nil
}

func sorted(headers [][2]string) [][2]string {
	headers = slices.Clone(headers)
	slices.SortFunc(headers, func(one, other [2]string) int {
		return cmp.Or(strings.Compare(one[0], other[0]), strings.Compare(one[1], other[1]))
	})
	return headers
}

func (g *gather) send(one *waiting) provider.RawAnswer {
	g.mutex.Lock()
	g.waiting = append(g.waiting, one)
	sends := g.sends
	g.sends = true
	g.mutex.Unlock()
	if !sends {
		go g.run()
	}
	<-one.done
	return one.answer
}

// yields is how often every goroutine gets a turn without a new request before the requests leave.
const yields = 3

func (g *gather) run() {
	for {
		g.yield()
		g.mutex.Lock()
		batch := g.waiting
		g.waiting = nil
		if g.sends = len(batch) > 0; !g.sends {
			g.mutex.Unlock()
			return
		}
		g.mutex.Unlock()
		requests := make([]provider.RawRequest, 0, len(batch))
		for _, one := range batch {
			requests = append(requests, one.raw)
		}
		answers := provider.SendRaw(requests)
		for index, one := range batch {
			one.answer = provider.RawAnswer{Failure: &provider.Failure{
				Kind: provider.FailureInterrupted, Message: "the host returned fewer responses than requests",
			}}
			if index < len(answers) {
				one.answer = answers[index]
			}
			close(one.done)
		}
	}
}

func (g *gather) yield() {
	count := func() int {
		g.mutex.Lock()
		defer g.mutex.Unlock()
		return len(g.waiting)
	}
	for before, quiet := count(), 0; quiet < yields; {
		runtime.Gosched()
		if now := count(); now != before {
			before, quiet = now, 0
		} else {
			quiet++
		}
	}
}
