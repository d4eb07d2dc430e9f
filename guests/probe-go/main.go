// A Go program that does in the sandbox what Go programs do elsewhere: the name of the cluster in a
// call is what it does, and the error of the call is what it saw. `tests/it/src/go_guests.rs` has a
// test for each.
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"skysail.dev/provider"
	"skysail.dev/provider/export/identity"
	"skysail.dev/provider/export/loadbalancers"
	"skysail.dev/provider/httptransport"
)

func init() {
	identity.Export(probe{})
	loadbalancers.Export(probe{})
}

func main() {}

type probe struct{}

func (probe) Describe() provider.Info {
	return provider.Info{Name: "probe-go", Version: "0.1.0", Description: "A probe of the sandbox, in Go"}
}

func (probe) CheckConfig(string) []provider.Problem { return nil }
func (probe) Origins(string) []string               { return nil }

func (probe) LoadBalancerName(string, *provider.Service) string { return "probe" }

func (probe) GetLoadBalancer(what string, _ *provider.Service) (*provider.LoadBalancerStatus, error) {
	switch what {
	case "files":
		return nil, refused(files()...)
	case "sockets":
		return nil, refused(sockets()...)
	case "environment":
		return nil, saw("%d %q", len(os.Environ()), os.Args)
	case "random":
		return nil, random()
	case "output":
		fmt.Println("by fmt")
		fmt.Fprintln(os.Stderr, "by standard error")
		slog.Warn("by slog", "number", 7)
		return nil, saw("done")
	case "sleep":
		began := time.Now()
		time.Sleep(30 * time.Millisecond)
		return nil, saw("%v", time.Since(began) >= 30*time.Millisecond)
	case "panic":
		var none map[string]int
		none["key"] = 1
	case "deadlock":
		<-make(chan int)
	case "goroutines":
		for {
			go spin()
			runtime.Gosched()
		}
	case "exit":
		os.Exit(3)
	case "requests":
		return nil, requests()
	}
	return nil, nil
}

func (probe) EnsureLoadBalancer(string, *provider.Service, provider.NodeSet) (*provider.LoadBalancerStatus, error) {
	return nil, provider.Unsupported("the probe has no load balancers")
}

// rounds are enough to make the collector run again and again.
const rounds = 3

// UpdateLoadBalancer makes Go's collector run while the host writes into the guest's memory.
func (probe) UpdateLoadBalancer(_ string, _ *provider.Service, nodes provider.NodeSet) error {
	debug.SetGCPercent(1)
	seen := 0
	for range rounds {
		ids := nodes.ProviderIDs()
		for index, name := range nodes.Names() {
			node, found := nodes.Get(index)
			if !found || node.Name != name || node.ProviderID != ids[index] || node.Labels["name"] != name {
				return saw("node %d is %+v instead of %s", index, node, name)
			}
			seen++
			// The collector's own goroutine gets a turn.
			runtime.Gosched()
		}
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return saw("%d nodes, collected: %v", seen, stats.NumGC > 5)
}

func (probe) EnsureLoadBalancerDeleted(string, *provider.Service) error { return nil }

func saw(format string, args ...any) error { return provider.Invalid(format, args...) }

// refused tells which of these did not fail.
func refused(errors ...error) error {
	for index, err := range errors {
		if err == nil {
			return saw("number %d was allowed", index)
		}
	}
	return saw("%d were refused", len(errors))
}

func files() []error {
	_, read := os.ReadFile("/etc/hostname")
	_, list := os.ReadDir("/")
	_, here := os.ReadDir(".")
	_, stat := os.Stat("/")
	return []error{
		read, list, here, stat, os.WriteFile("/tmp/x", nil, 0o600), os.Mkdir("x", 0o700), os.Remove("/etc/hostname"),
		os.Symlink("/etc", "x"), os.Chdir("/"),
	}
}

// sockets leaves net.Listen and UDP out, which succeed: Go has a network of its
// own in the program's memory.
func sockets() []error {
	_, dial := net.DialTimeout("tcp", "127.0.0.1:80", time.Second)
	_, resolve := net.LookupHost("localhost.example")
	_, get := http.Get("http://127.0.0.1/")
	return []error{dial, resolve, get}
}

// random shows what must differ between two calls: random numbers, and the order of a map.
func random() error {
	var secure [16]byte
	if _, err := rand.Read(secure[:]); err != nil {
		return err
	}
	order, numbers := "", map[int]bool{}
	for number := range 32 {
		numbers[number] = true
	}
	for number := range numbers {
		order += fmt.Sprint(number, " ")
	}
	return saw("%x|%x|%s", secure, mathrand.Uint64(), order)
}

var spun int

func spin() {
	for {
		spun++
		runtime.Gosched()
	}
}

// requests makes three at the same time by net/http, none of which the operator allows.
func requests() error {
	client := http.Client{Transport: &httptransport.Transport{Credential: "api"}}
	var group sync.WaitGroup
	var mutex sync.Mutex
	kinds := map[provider.FailureKind]int{}
	for range 3 {
		group.Go(func() {
			_, err := client.Get("http://127.0.0.1:1/")
			var failure *provider.Failure
			errors.As(err, &failure)
			mutex.Lock()
			defer mutex.Unlock()
			if failure != nil {
				kinds[failure.Kind]++
			}
		})
	}
	group.Wait()
	return saw("%v", kinds)
}
