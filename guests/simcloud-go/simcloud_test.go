package main

import (
	"fmt"
	"reflect"
	"testing"

	"skysail.dev/provider"
)

func service(protocol provider.Protocol, nodePort uint16) *provider.Service {
	return &provider.Service{UID: "0a1b", Ports: []provider.ServicePort{{Protocol: protocol, Port: 80, NodePort: nodePort}}}
}

func TestWhatTheCloudCannotCarryIsRefusedByItsKind(t *testing.T) {
	six := service(provider.TCP, 30080)
	six.IPFamilies = []provider.IPFamily{provider.IPv6}
	for name, one := range map[string]struct {
		service *provider.Service
		code    provider.Code
	}{
		"UDP":          {service(provider.UDP, 30080), provider.CodeUnsupported},
		"SCTP":         {service(provider.SCTP, 30080), provider.CodeUnsupported},
		"no node port": {service(provider.TCP, 0), provider.CodeInvalid},
		"IPv6":         {six, provider.CodeUnsupported},
	} {
		if err := check(one.service); err == nil || provider.AsError(err).Code != one.code {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := check(service(provider.TCP, 30080)); err != nil {
		t.Error(err)
	}
}

func TestSourcesThatAreAllIPv6NeverBecomeEveryClient(t *testing.T) {
	for want, ranges := range map[string][]string{
		"[]":           {"0.0.0.0/0", "10.0.0.0/8"},
		"[10.0.0.0/8]": {"10.1.0.0/8", "fd00::/8"},
	} {
		one := service(provider.TCP, 30080)
		one.SourceRanges = ranges
		if got, err := sources(one); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%v: got %v, %v", ranges, got, err)
		}
	}
	one := service(provider.TCP, 30080)
	one.SourceRanges = []string{"fd00::/8"}
	if _, err := sources(one); err == nil || provider.AsError(err).Code != provider.CodeUnsupported {
		t.Errorf("got %v", err)
	}
}

func TestBackendsAreInTheOrderOfTheirAddresses(t *testing.T) {
	got := backends([]string{"127.89.0.10", "127.89.0.9", "127.89.0.10"}, 1)
	if want := []backend{{"127.89.0.9", 1}, {"127.89.0.10", 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}
