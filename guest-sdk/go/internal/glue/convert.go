//go:build wasip1

package glue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"skysail.dev/provider"

	types "skysail.dev/provider/internal/wit/imports/skysail_provider_types"
	witruntime "skysail.dev/provider/internal/wit/runtime"
	wt "skysail.dev/provider/internal/wit/types"
)

// Pairs are fields of the contract.
type Pairs = []wt.Tuple2[string, string]

// ToMap returns pairs by their keys; nil for none.
func ToMap(pairs Pairs) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	values := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		values[pair.F0] = pair.F1
	}
	return values
}

// FromMap returns the pairs of a map in the order of their keys.
func FromMap(values map[string]string) Pairs {
	pairs := make(Pairs, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, wt.Tuple2[string, string]{F0: Text(key), F1: Text(values[key])})
	}
	return pairs
}

// Text is a text that the host accepts: a string of Go may have other bytes than UTF-8, for example
// from the body of a response, and the whole call would trap.
func Text(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// Each converts every element.
func Each[T, U any](in []T, convert func(T) U) []U {
	out := make([]U, 0, len(in))
	for _, element := range in {
		out = append(out, convert(element))
	}
	return out
}

// Optional is none for an empty text.
func Optional(text string) wt.Option[string] {
	if text == "" {
		return wt.None[string]()
	}
	return wt.Some(Text(text))
}

// FromError is the contract's error of an error.
func FromError(err error) types.Error {
	known := provider.AsError(err)
	text := Text(known.Message)
	switch known.Code {
	case provider.CodeNotFound:
		return types.MakeErrorNotFound(text)
	case provider.CodeImplementedElsewhere:
		return types.MakeErrorImplementedElsewhere(text)
	case provider.CodeUnsupported:
		return types.MakeErrorUnsupported(text)
	case provider.CodeInvalid:
		return types.MakeErrorInvalid(text)
	case provider.CodeDenied:
		return types.MakeErrorDenied(text)
	case provider.CodeExhausted:
		return types.MakeErrorExhausted(text)
	case provider.CodeRetryAfter:
		return types.MakeErrorRetryAfter(types.Retry{AfterMs: uint64(max(known.After.Milliseconds(), 0)), Message: text})
	case provider.CodeUnavailable:
		return types.MakeErrorUnavailable(text)
	}
	return types.MakeErrorInternal(text)
}

// Of is the contract's result of a value or an error.
func Of[T any](value T, err error) wt.Result[T, types.Error] {
	if err != nil {
		return wt.Err[T](FromError(err))
	}
	return wt.Ok[T, types.Error](value)
}

// Units are the contract's results of one error for each element.
func Units(errors []error, err error) wt.Result[[]wt.Result[wt.Unit, types.Error], types.Error] {
	return Of(Each(errors, func(one error) wt.Result[wt.Unit, types.Error] { return Of(wt.Unit{}, one) }), err)
}

// Enter begins an export; the result, which the export defers, ends it. The trap that follows a
// panic carries no text, so that the host takes the text from the log.
func Enter() (leave func()) {
	stopCollector := witruntime.Enter()
	return func() {
		reason := recover()
		if reason == nil {
			stopCollector()
			return
		}
		// Whatever the level of the host's log is.
		record := slog.NewRecord(time.Time{}, slog.LevelError, fmt.Sprintf("panicked at %s: %v", place(), reason), 0)
		record.Add("panic", true)
		_ = provider.LogHandler().Handle(context.Background(), record)
		panic(reason)
	}
}

// place is the first function of the panicking stack that is not Go's runtime; the three innermost
// ones are those that look.
func place() string {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		frame, more := frames.Next()
		if frame.File != "" && !strings.HasPrefix(frame.Function, "runtime.") {
			return fmt.Sprintf("%s:%d (%s)", frame.File, frame.Line, frame.Function)
		}
		if !more {
			return "an unknown place"
		}
	}
}

var addressTypes = []provider.AddressType{
	provider.Hostname, provider.InternalIP, provider.ExternalIP, provider.InternalDNS, provider.ExternalDNS,
}

func fromAddressType(kind provider.AddressType) types.AddressKind {
	switch kind {
	case provider.Hostname:
		return types.MakeAddressKindHostname()
	case provider.InternalIP:
		return types.MakeAddressKindInternalIp()
	case provider.ExternalIP:
		return types.MakeAddressKindExternalIp()
	case provider.InternalDNS:
		return types.MakeAddressKindInternalDns()
	case provider.ExternalDNS:
		return types.MakeAddressKindExternalDns()
	}
	return types.MakeAddressKindOther(Text(string(kind)))
}

// FromAddresses converts the addresses of a machine.
func FromAddresses(addresses []provider.NodeAddress) []types.NodeAddress {
	return Each(addresses, func(address provider.NodeAddress) types.NodeAddress {
		return types.NodeAddress{Kind: fromAddressType(address.Type), Address: Text(address.Address)}
	})
}

// ToAddresses converts the addresses of a node.
func ToAddresses(addresses []types.NodeAddress) []provider.NodeAddress {
	return Each(addresses, func(address types.NodeAddress) provider.NodeAddress {
		kind := address.Kind
		if int(kind.Tag()) < len(addressTypes) {
			return provider.NodeAddress{Type: addressTypes[kind.Tag()], Address: address.Address}
		}
		return provider.NodeAddress{Type: provider.AddressType(kind.Other()), Address: address.Address}
	})
}

// NodeSet is the host's set of nodes.
type NodeSet struct{ Held *types.NodeSet }

// Len is [provider.NodeSet]'s, as the methods below.
func (s NodeSet) Len() int              { return int(s.Held.Len()) }
func (s NodeSet) Digest() uint64        { return s.Held.Digest() }
func (s NodeSet) Names() []string       { return witruntime.Import(s.Held.Names) }
func (s NodeSet) ProviderIDs() []string { return Each(witruntime.Import(s.Held.ProviderIds), orEmpty) }
func (s NodeSet) Addresses(kind provider.AddressType) [][]string {
	return witruntime.Import(func() [][]string { return s.Held.Addresses(fromAddressType(kind)) })
}
func (s NodeSet) Label(key string) []provider.LabelValue {
	labels := witruntime.Import(func() []wt.Option[string] { return s.Held.Label(key) })
	return Each(labels, func(label wt.Option[string]) provider.LabelValue {
		return provider.LabelValue{Value: orEmpty(label), Found: label.IsSome()}
	})
}
func (s NodeSet) Get(index int) (provider.Node, bool) {
	if index < 0 || index >= s.Len() {
		return provider.Node{}, false
	}
	found := witruntime.Import(func() wt.Option[types.Node] { return s.Held.Get(uint32(index)) })
	if found.IsNone() {
		return provider.Node{}, false
	}
	node := found.Some()
	return provider.Node{
		Name: node.Name, UID: node.Uid, ProviderID: orEmpty(node.ProviderId), Addresses: ToAddresses(node.Addresses),
		Labels: ToMap(node.Labels), Annotations: ToMap(node.Annotations), Extra: ToMap(node.Extra),
		PodCIDRs: node.PodCidrs, Ready: node.Ready,
	}, true
}

func orEmpty(text wt.Option[string]) string { return text.SomeOr("") }

// ToService converts a Service.
func ToService(s types.Service) *provider.Service {
	service := &provider.Service{
		Namespace: s.Namespace, Name: s.Name, UID: s.Uid, Labels: ToMap(s.Labels), Annotations: ToMap(s.Annotations),
		Ports: Each(s.Ports, toPort), LoadBalancerIP: orEmpty(s.LoadBalancerIp),
		LoadBalancerClass: orEmpty(s.LoadBalancerClass), SourceRanges: s.SourceRanges, ExternalIPs: s.ExternalIps,
		ExternalTrafficPolicy: toPolicy(s.ExternalTrafficPolicy), InternalTrafficPolicy: toPolicy(s.InternalTrafficPolicy),
		HealthCheckNodePort: s.HealthCheckNodePort, AllocateNodePorts: s.AllocateNodePorts,
		Status: *ToStatus(s.Status), Extra: ToMap(s.Extra),
		IPFamilies: Each(s.IpFamilies, func(family types.IpFamily) provider.IPFamily {
			if family == types.IpFamilyIpv6 {
				return provider.IPv6
			}
			return provider.IPv4
		}),
	}
	if s.SessionAffinity.Tag() == types.SessionAffinityClientIp {
		service.ClientIPTimeoutSeconds = s.SessionAffinity.ClientIp()
	}
	if s.IpFamilyPolicy.IsSome() {
		policies := []provider.IPFamilyPolicy{provider.SingleStack, provider.PreferDualStack, provider.RequireDualStack}
		service.IPFamilyPolicy = policies[s.IpFamilyPolicy.Some()]
	}
	return service
}

func toPolicy(policy types.TrafficPolicy) provider.TrafficPolicy {
	if policy == types.TrafficPolicyLocal {
		return provider.Local
	}
	return provider.Cluster
}

// protocols are in the order of the contract's.
var protocols = []provider.Protocol{provider.TCP, provider.UDP, provider.SCTP}

func toPort(port types.ServicePort) provider.ServicePort {
	return provider.ServicePort{
		Name: port.Name, Protocol: protocols[port.Protocol], AppProtocol: orEmpty(port.AppProtocol),
		Port: port.Port, NodePort: port.NodePort, TargetPort: port.TargetPort, Extra: ToMap(port.Extra),
	}
}

// ToStatus converts the status of a Service.
func ToStatus(status types.LoadBalancerStatus) *provider.LoadBalancerStatus {
	return &provider.LoadBalancerStatus{Ingress: Each(status.Ingress, func(in types.Ingress) provider.Ingress {
		ingress := provider.Ingress{IP: orEmpty(in.Ip), Hostname: orEmpty(in.Hostname), Extra: ToMap(in.Extra)}
		if in.IpMode.IsSome() {
			ingress.IPMode = []provider.IPMode{provider.VIP, provider.Proxy}[in.IpMode.Some()]
		}
		ingress.Ports = Each(in.Ports, func(port types.PortStatus) provider.PortStatus {
			return provider.PortStatus{Port: port.Port, Protocol: protocols[port.Protocol], Error: orEmpty(port.Error)}
		})
		return ingress
	})}
}

// FromStatus converts the status of a load balancer.
func FromStatus(status *provider.LoadBalancerStatus) types.LoadBalancerStatus {
	return types.LoadBalancerStatus{Ingress: Each(status.Ingress, func(in provider.Ingress) types.Ingress {
		ingress := types.Ingress{
			Ip: Optional(in.IP), Hostname: Optional(in.Hostname), IpMode: wt.None[types.IpMode](), Extra: FromMap(in.Extra),
		}
		switch in.IPMode {
		case provider.VIP:
			ingress.IpMode = wt.Some(types.IpModeVip)
		case provider.Proxy:
			ingress.IpMode = wt.Some(types.IpModeProxy)
		}
		ingress.Ports = Each(in.Ports, func(port provider.PortStatus) types.PortStatus {
			// A protocol that the contract does not have is TCP, Kubernetes' default.
			protocol := types.Protocol(max(slices.Index(protocols, port.Protocol), 0))
			return types.PortStatus{Port: port.Port, Protocol: protocol, Error: Optional(port.Error)}
		})
		return ingress
	})}
}
