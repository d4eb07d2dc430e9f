package httptransport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"skysail.dev/provider"
	"skysail.dev/provider/providertest"
)

func TestARequestKeepsWhatTheHostDoesNotSetItself(t *testing.T) {
	host := providertest.New(t)
	var seen *http.Request
	var body []byte
	host.Cloud = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("X-Answer", "1")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "made")
	})
	client := http.Client{Transport: &Transport{Credential: "api", SetByCredential: []string{"x-auth-token"}}}
	request, err := http.NewRequest("POST", "http://user:password@cloud.test/v1/things?a=b", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer secret", "Cookie": "a=b", "Proxy-Authorization": "x", "X-Mine": "1", "Accept-Encoding": "gzip",
		"X-Auth-Token": "secret", "Range": "bytes=0-1",
	} {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(response.Body)
	if response.StatusCode != 201 || response.Header.Get("x-answer") != "1" || string(answer) != "made" {
		t.Errorf("got %v %q", response, answer)
	}
	for name, want := range map[string]string{
		"Authorization": "", "Cookie": "", "Proxy-Authorization": "", "Accept-Encoding": "", "X-Mine": "1",
		"X-Auth-Token": "", "Range": "",
		"Skysail-Credential": "api",
	} {
		if got := seen.Header.Get(name); got != want {
			t.Errorf("header %s: got %q, want %q", name, got, want)
		}
	}
	if string(body) != "{}" || seen.URL.String() != "http://cloud.test/v1/things?a=b" {
		t.Errorf("got %s with body %q", seen.URL, body)
	}
}

// counts has the number of requests that left together.
type counts struct {
	*providertest.Host
	sizes []int
}

func (c *counts) Send(requests []provider.RawRequest) []provider.RawAnswer {
	c.sizes = append(c.sizes, len(requests))
	return c.Host.Send(requests)
}

func TestRequestsOfSeveralGoroutinesLeaveTogether(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })
	counting := &counts{Host: host}
	provider.UseHost(counting)
	const requests = 20
	var group sync.WaitGroup
	client := http.Client{Transport: &Transport{}}
	for number := range requests {
		group.Go(func() {
			path := "/" + strings.Repeat("a", number+1)
			response, err := client.Get("http://cloud.test" + path)
			if err != nil {
				t.Error(err)
				return
			}
			if answer, _ := io.ReadAll(response.Body); string(answer) != path {
				t.Errorf("%s got the answer to %s", path, answer)
			}
		})
	}
	group.Wait()
	sum := 0
	for _, size := range counting.sizes {
		sum += size
	}
	// Natively the goroutines run on several processors, so that some may come late.
	if sum != requests || len(counting.sizes) > requests/2 {
		t.Errorf("%d requests left in groups of %v", requests, counting.sizes)
	}
}

func TestAFailureIsTheContractsError(t *testing.T) {
	providertest.New(t)
	_, err := (&http.Client{Transport: &Transport{}}).Get("http://cloud.test/")
	if code := provider.AsError(err).Code; code != provider.CodeUnavailable {
		t.Errorf("an unreachable cloud is code %d: %v", code, err)
	}
}

func TestADeadlineGoesToTheHostAndACancelledRequestDoesNot(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = http.NotFoundHandler()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, "GET", "http://cloud.test/", nil)
	raw, err := (&Transport{}).raw(request)
	if err != nil || raw.Timeout <= 59*time.Minute || raw.Timeout > time.Hour {
		t.Errorf("got the timeout %v, %v", raw.Timeout, err)
	}
	cancel()
	if _, err := (&Transport{}).RoundTrip(request); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if sent := host.Requests(); sent != nil {
		t.Errorf("sent %v", sent)
	}
}

func TestEqualGetsAreSentOnceWhereTheyAreShared(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/failing" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		io.WriteString(w, r.URL.Path)
	})
	client := http.Client{Transport: &Transport{}}
	get := func(path string) {
		response, err := client.Get("http://cloud.test" + path)
		if err != nil {
			t.Error(err)
			return
		}
		if answer, _ := io.ReadAll(response.Body); string(answer) != path {
			t.Errorf("%s got the answer to %s", path, answer)
		}
	}
	ShareGets(func() {
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() { get("/a") })
		}
		group.Wait()
		get("/a")
		get("/b")
		for _, name := range []string{"a", "b"} {
			request, _ := http.NewRequest("GET", "http://cloud.test/search", strings.NewReader(name))
			if _, err := client.Do(request); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			if _, err := client.Get("http://cloud.test/failing"); err != nil {
				t.Error(err)
			}
		}
		if _, err := client.Post("http://cloud.test/a", "text/plain", nil); err != nil {
			t.Error(err)
		}
	})
	get("/a")
	// Shared: /a. Sent each time: /b, the POST, both bodies, both failures, and /a afterwards.
	if sent := host.Requests(); len(sent) != 8 {
		t.Errorf("sent %v", sent)
	}
}
