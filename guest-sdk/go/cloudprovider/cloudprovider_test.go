package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	"skysail.dev/provider"
	"skysail.dev/provider/httptransport"
	"skysail.dev/provider/providertest"
)

// vendor is a cloud provider as a vendor writes it: it sends requests by a client of its own, and
// keeps the client of Kubernetes that Initialize gives it.
type vendor struct {
	cloudprovider.Interface
	http    http.Client
	clients kubernetes.Interface
	// old has the interfaces before InstancesV2 only.
	old   bool
	fails error
}

func of(t *testing.T, in *vendor) (*Cloud, *providertest.Host) {
	t.Helper()
	host := providertest.New(t)
	host.Cloud = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "gone") {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, "zone-a")
	})
	cloud := New(Options{Info: provider.Info{Name: "vendor"}})
	in.http.Transport = &httptransport.Transport{Credential: "api"}
	cloud.made = func(string) (cloudprovider.Interface, error) { return in, nil }
	return cloud, host
}

func (v *vendor) Initialize(clients cloudprovider.ControllerClientBuilder, _ <-chan struct{}) {
	v.clients = clients.ClientOrDie("vendor")
}
func (v *vendor) ProviderName() string                             { return "vendor" }
func (v *vendor) InstancesV2() (cloudprovider.InstancesV2, bool)   { return v, !v.old }
func (v *vendor) Instances() (cloudprovider.Instances, bool)       { return older{v}, v.old }
func (v *vendor) Zones() (cloudprovider.Zones, bool)               { return older{v}, v.old }
func (v *vendor) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return v, true }
func (v *vendor) Routes() (cloudprovider.Routes, bool)             { return nil, false }

// get asks the cloud about a machine.
func (v *vendor) get(name string) (string, error) {
	response, err := v.http.Get("http://cloud.test/" + name)
	if err != nil {
		return "", fmt.Errorf("cannot get %s: %w", name, err)
	}
	text, err := io.ReadAll(response.Body)
	if response.StatusCode == http.StatusNotFound {
		return "", cloudprovider.InstanceNotFound
	}
	return string(text), err
}

func (v *vendor) InstanceExists(_ context.Context, node *v1.Node) (bool, error) {
	_, err := v.get(node.Name)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, v.fails
	}
	return err == nil, errors.Join(err, v.fails)
}

func (v *vendor) InstanceShutdown(_ context.Context, node *v1.Node) (bool, error) {
	return strings.HasPrefix(node.Name, "off"), nil
}

func (v *vendor) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	zone, err := v.get(node.Name)
	return &cloudprovider.InstanceMetadata{
		ProviderID: "vendor://" + node.Name, InstanceType: "small", Zone: zone, Region: "region",
		NodeAddresses:    []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}},
		AdditionalLabels: map[string]string{"a": "b"},
	}, err
}

// older is the same by the interfaces before InstancesV2.
type older struct{ *vendor }

func (o older) InstanceID(_ context.Context, name types.NodeName) (string, error) {
	_, err := o.get(string(name))
	return string(name), err
}
func (o older) InstanceExistsByProviderID(_ context.Context, id string) (bool, error) {
	_, err := o.get(strings.TrimPrefix(id, "vendor://"))
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	return err == nil, err
}
func (o older) InstanceShutdownByProviderID(context.Context, string) (bool, error) {
	return false, cloudprovider.NotImplemented
}
func (o older) NodeAddresses(context.Context, types.NodeName) ([]v1.NodeAddress, error) {
	return []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}}, nil
}
func (o older) NodeAddressesByProviderID(context.Context, string) ([]v1.NodeAddress, error) {
	return nil, errors.New("by name only")
}
func (o older) InstanceType(context.Context, types.NodeName) (string, error) { return "by name", nil }
func (o older) InstanceTypeByProviderID(context.Context, string) (string, error) {
	return "small", nil
}
func (o older) AddSSHKeyToAllInstances(context.Context, string, []byte) error { return nil }
func (o older) CurrentNodeName(context.Context, string) (types.NodeName, error) {
	return "", cloudprovider.NotImplemented
}
func (o older) GetZone(context.Context) (cloudprovider.Zone, error) { return cloudprovider.Zone{}, nil }
func (o older) GetZoneByProviderID(_ context.Context, id string) (cloudprovider.Zone, error) {
	zone, err := o.get(strings.TrimPrefix(id, "vendor://"))
	return cloudprovider.Zone{FailureDomain: zone, Region: "region"}, err
}
func (o older) GetZoneByNodeName(context.Context, types.NodeName) (cloudprovider.Zone, error) {
	return cloudprovider.Zone{}, errors.New("by ID only")
}

func TestNodesAreDescribedByEitherGenerationOfInterfaces(t *testing.T) {
	for _, old := range []bool{false, true} {
		cloud, host := of(t, &vendor{old: old})
		nodes := provider.NewNodes(provider.Node{Name: "a"}, provider.Node{Name: "gone", ProviderID: "vendor://gone"},
			provider.Node{Name: "off-b", ProviderID: "vendor://off-b"})
		results, err := cloud.DescribeInstances(nodes, provider.Metadata)
		if err != nil || len(results) != 3 {
			t.Fatalf("old %v: got %v, %v", old, results, err)
		}
		a := results[0].Value
		if a.ProviderID != "vendor://a" || a.InstanceType != "small" || a.Zone != "zone-a" || a.Region != "region" ||
			!reflect.DeepEqual(a.Addresses, []provider.NodeAddress{{Type: provider.InternalIP, Address: "10.0.0.1"}}) {
			t.Errorf("old %v: got %+v", old, a)
		}
		if got := results[1].Err; got == nil || provider.IsNotFound(got) {
			t.Errorf("old %v: only the state may say that a machine does not exist: got %v", old, got)
		}
		if results[2].Value.Shutdown || results[2].Err != nil {
			t.Errorf("old %v: got %+v", old, results[2])
		}
		// A failure is not shared: InstanceID, addresses and zones of the machine that is gone.
		if sent := host.Requests(); len(sent) > 5 {
			t.Errorf("old %v: each machine is asked about once, but sent %v", old, sent)
		}
	}
}

func TestTheStateIsExistenceAndPower(t *testing.T) {
	for _, old := range []bool{false, true} {
		cloud, _ := of(t, &vendor{old: old})
		nodes := provider.NewNodes(provider.Node{Name: "a"}, provider.Node{Name: "gone"},
			provider.Node{Name: "gone-too", ProviderID: "vendor://gone-too"}, provider.Node{Name: "off-b", ProviderID: "vendor://off-b"})
		results, err := cloud.DescribeInstances(nodes, provider.State)
		if err != nil || len(results) != 4 {
			t.Fatalf("old %v: got %v, %v", old, results, err)
		}
		if want := (provider.Instance{ProviderID: "vendor://a"}); !reflect.DeepEqual(results[0].Value, want) {
			t.Errorf("old %v: got %+v", old, results[0])
		}
		for _, gone := range results[1:3] {
			if !provider.IsNotFound(gone.Err) {
				t.Errorf("old %v: got %+v", old, gone)
			}
		}
		// The older vendor cannot tell.
		if results[3].Value.Shutdown == old || results[3].Err != nil {
			t.Errorf("old %v: got %+v", old, results[3])
		}
	}
}

// noShutdown is a vendor whose machines have no power state, and which forgets a
// machine between two questions.
type noShutdown struct {
	*vendor
	err error
}

func (n noShutdown) InstanceShutdown(context.Context, *v1.Node) (bool, error) { return false, n.err }

func TestAVendorThatCannotTellThePowerStateDeletesNoNode(t *testing.T) {
	node := &v1.Node{}
	node.Name, node.Spec.ProviderID = "a", "vendor://a"
	for err, code := range map[error]provider.Code{
		cloudprovider.NotImplemented: 99, cloudprovider.InstanceNotFound: 99, errors.New("busy"): provider.CodeUnavailable,
	} {
		in := &vendor{}
		of(t, in)
		got := described(second{noShutdown{in, err}}, node, provider.State)
		if code == 99 && (got.Err != nil || got.Value.Shutdown) || code != 99 && provider.AsError(got.Err).Code != code {
			t.Errorf("%v: got %+v", err, got)
		}
	}
}

// withoutIDs is an older vendor whose machines have no IDs.
type withoutIDs struct{ older }

func (withoutIDs) InstanceID(context.Context, types.NodeName) (string, error) {
	return "", cloudprovider.NotImplemented
}
func (withoutIDs) InstanceTypeByProviderID(context.Context, string) (string, error) {
	return "", errors.New("there are no IDs")
}

func TestACloudWithoutIDsIsAskedByName(t *testing.T) {
	in := &vendor{old: true}
	of(t, in)
	look, node := first{in, withoutIDs{older{in}}, nil}, &v1.Node{}
	node.Name = "a"
	got := described(look, node, provider.Metadata)
	if got.Err != nil || got.Value.ProviderID != "" || got.Value.Extra[provider.WithoutProviderID] != "true" || got.Value.InstanceType != "by name" {
		t.Errorf("got %+v", got)
	}
	if got := described(look, node, provider.State); provider.AsError(got.Err).Code != provider.CodeUnsupported {
		t.Errorf("got %+v", got)
	}
}

func TestAFunctionThatAVendorLacksHidesNoErrorOfTheOther(t *testing.T) {
	lacks := func() (int, error) { return 0, cloudprovider.NotImplemented }
	fails := func() (int, error) { return 0, errors.New("503") }
	for _, one := range []struct {
		byID, byName func() (int, error)
		code         provider.Code
		text         string
	}{
		{fails, lacks, provider.CodeUnavailable, "by provider ID: 503"},
		{lacks, fails, provider.CodeUnavailable, "by name: 503"},
		{fails, fails, provider.CodeUnavailable, "by provider ID: 503\nby name: 503"},
		{lacks, lacks, provider.CodeUnsupported, "by provider ID: unimplemented"},
	} {
		_, err := either(false, one.byID, one.byName)
		if got := provider.AsError(failed(err)); got.Code != one.code || got.Message != one.text {
			t.Errorf("got %+v", got)
		}
	}
}

func TestACallIsAboutFewNodesUnlessTheVendorSaysMore(t *testing.T) {
	for given, want := range map[int]int{0: 8, 500: 500} {
		if info := New(Options{Info: provider.Info{PageNodes: given}}).Describe(); info.PageNodes != want {
			t.Errorf("got %d, want %d", info.PageNodes, want)
		}
	}
}

func TestTheCredentialReplacesTheHeadersThatItSets(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	New(Options{Credential: func(*http.Request) string { return "api" }, SetByCredential: []string{"X-Auth-Token"}})
	request, _ := http.NewRequest(http.MethodGet, "https://cloud.example.com/", nil)
	request.Header.Set("X-Auth-Token", "of the vendor")
	if _, err := http.DefaultTransport.RoundTrip(request); err != nil {
		t.Fatal(err)
	}
	sent := host.Sent()
	if len(sent) != 1 || sent[0].Credential != "api" || slices.ContainsFunc(sent[0].Headers, func(header [2]string) bool { return header[0] == "x-auth-token" }) {
		t.Errorf("sent %+v", sent)
	}
}

func TestAPanicAboutOneNodeIsItsError(t *testing.T) {
	cloud, _ := of(t, &vendor{})
	in := &panicking{vendor: &vendor{}}
	cloud.made = func(string) (cloudprovider.Interface, error) { return in, nil }
	results, err := cloud.DescribeInstances(provider.NewNodes(provider.Node{Name: "a"}), provider.State)
	if err != nil || provider.AsError(results[0].Err).Code != provider.CodeInternal || !strings.Contains(results[0].Err.Error(), "odd") {
		t.Errorf("got %v, %v", results, err)
	}
}

// panicking is a vendor with a bug.
type panicking struct{ *vendor }

func (p *panicking) InstancesV2() (cloudprovider.InstancesV2, bool)         { return p, true }
func (p *panicking) InstanceExists(context.Context, *v1.Node) (bool, error) { panic("odd") }

func TestAFailedLookUpIsNotAMissingMachine(t *testing.T) {
	cloud, host := of(t, &vendor{})
	host.Cloud = nil
	results, err := cloud.DescribeInstances(provider.NewNodes(provider.Node{Name: "a"}), provider.Metadata)
	if err != nil || provider.AsError(results[0].Err).Code != provider.CodeUnavailable {
		t.Errorf("got %v, %v", results, err)
	}
}

func TestAVendorsErrorIsTheContractsErrorOfTheSameReaction(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("vendor: %w", err) }
	for _, one := range []struct {
		err   error
		code  provider.Code
		after time.Duration
	}{
		// An error says nothing about whether the object of the call exists.
		{cloudprovider.InstanceNotFound, provider.CodeUnavailable, 0},
		{wrapped(cloudprovider.InstanceNotFound), provider.CodeUnavailable, 0},
		{wrapped(cloudprovider.ImplementedElsewhere), provider.CodeImplementedElsewhere, 0},
		{wrapped(cloudprovider.NotImplemented), provider.CodeUnsupported, 0},
		{wrapped(api.NewRetryError("later", time.Minute)), provider.CodeRetryAfter, time.Minute},
		{wrapped(&provider.Failure{Kind: provider.FailureForbidden}), provider.CodeDenied, 0},
		{wrapped(&provider.Failure{Kind: provider.FailureTimeout}), provider.CodeUnavailable, 0},
		{errors.New("anything else"), provider.CodeUnavailable, 0},
	} {
		got := provider.AsError(failed(one.err))
		if got.Code != one.code || got.After != one.after || got.Message != one.err.Error() {
			t.Errorf("%v: got %+v", one.err, got)
		}
	}
	if err := failed(nil); err != nil {
		t.Errorf("got %v", err)
	}
}

func (v *vendor) GetLoadBalancerName(_ context.Context, cluster string, service *v1.Service) string {
	return cluster + "-" + service.Name
}

func (v *vendor) GetLoadBalancer(context.Context, string, *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	return nil, false, nil
}

// EnsureLoadBalancer does with the Kubernetes API what vendors do.
func (v *vendor) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	listed, err := v.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(listed.Items) != len(nodes) {
		return nil, fmt.Errorf("listed %v: %w", listed, err)
	}
	node, err := v.clients.CoreV1().Nodes().Get(ctx, nodes[0].Name, metav1.GetOptions{})
	if err != nil || node.Spec.ProviderID != nodes[0].Spec.ProviderID {
		return nil, fmt.Errorf("got %v: %w", node, err)
	}
	same, err := v.clients.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
	if err != nil || same.UID != service.UID {
		return nil, fmt.Errorf("got %v: %w", same, err)
	}
	event := &v1.Event{Type: v1.EventTypeWarning, Reason: "Slow", Message: "100 % used"}
	if _, err := v.clients.CoreV1().Events(service.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	for range 2 {
		patch := []byte(`{"metadata":{"annotations":{"a":"b"}}}`)
		_, err = v.clients.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("a patch: %w", err)
		}
	}
	// "Not found" would say that these do not exist.
	_, other := v.clients.CoreV1().Services(service.Namespace).Get(ctx, "other", metav1.GetOptions{})
	_, elsewhere := v.clients.CoreV1().Nodes().Get(ctx, "elsewhere", metav1.GetOptions{})
	_, some := v.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "a=b"})
	for _, err := range []error{other, elsewhere, some} {
		if !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("an object that the call does not have: %w", err)
		}
	}
	mode := v1.LoadBalancerIPModeProxy
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1", IPMode: &mode}}}, nil
}

func (v *vendor) UpdateLoadBalancer(context.Context, string, *v1.Service, []*v1.Node) error {
	return cloudprovider.ImplementedElsewhere
}

// recording is a vendor whose Events go through client-go's recorder.
type recording struct{ *vendor }

func (r recording) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return r, true }

func (r recording) UpdateLoadBalancer(_ context.Context, _ string, service *v1.Service, _ []*v1.Node) error {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typed.EventSinkImpl{Interface: r.clients.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "vendor"})
	recorder.Event(service, v1.EventTypeWarning, "Late", "sent by a goroutine")
	return nil
}

func TestAnEventOfTheRecorderIsSentBeforeTheCallEnds(t *testing.T) {
	// As in the sandbox.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	cloud, host := of(t, &vendor{})
	in := recording{&vendor{}}
	cloud.made = func(string) (cloudprovider.Interface, error) { return in, nil }
	service := &provider.Service{Namespace: "default", Name: "web", UID: "0a1b"}
	if err := cloud.UpdateLoadBalancer("kubernetes", service, provider.NewNodes()); err != nil {
		t.Fatal(err)
	}
	want := []providertest.Event{{Warning: true, Reason: "Late", Message: "sent by a goroutine"}}
	if got := host.Events(); !reflect.DeepEqual(got, want) {
		t.Errorf("got the Events %v", got)
	}
}

func (v *vendor) EnsureLoadBalancerDeleted(context.Context, string, *v1.Service) error { return nil }

func TestAVendorFindsTheObjectsOfTheCallInTheKubernetesAPI(t *testing.T) {
	cloud, host := of(t, &vendor{})
	service := &provider.Service{Namespace: "default", Name: "web", UID: "0a1b"}
	nodes := provider.NewNodes(provider.Node{Name: "a", ProviderID: "vendor://a"}, provider.Node{Name: "b"})
	status, err := cloud.EnsureLoadBalancer("kubernetes", service, nodes)
	want := &provider.LoadBalancerStatus{Ingress: []provider.Ingress{{IP: "192.0.2.1", IPMode: provider.Proxy}}}
	if err != nil || !reflect.DeepEqual(status, want) {
		t.Fatalf("got %+v, %v", status, err)
	}
	events := []providertest.Event{{Warning: true, Reason: "Slow", Message: "100 % used"}}
	if got := host.Events(); !reflect.DeepEqual(got, events) {
		t.Errorf("got the Events %v", got)
	}
	if sent := host.Requests(); sent != nil {
		t.Errorf("requests to the Kubernetes API left the program: %v", sent)
	}
	if err := cloud.UpdateLoadBalancer("kubernetes", service, nodes); provider.AsError(err).Code != provider.CodeImplementedElsewhere {
		t.Errorf("got %v", err)
	}
	if found, err := cloud.GetLoadBalancer("kubernetes", service); found != nil || err != nil {
		t.Errorf("got %v, %v", found, err)
	}
	if name := cloud.LoadBalancerName("kubernetes", service); name != "kubernetes-web" {
		t.Errorf("got %s", name)
	}
	if _, err := cloud.ListRoutes("kubernetes"); provider.AsError(err).Code != provider.CodeUnsupported {
		t.Errorf("got %v", err)
	}
}

func TestAServiceKeepsEveryFieldThatTheContractHas(t *testing.T) {
	service := toService(&provider.Service{
		Namespace: "default", Name: "web", UID: "0a1b", Annotations: map[string]string{"a": "b"},
		Ports:                  []provider.ServicePort{{Name: "p", Protocol: provider.UDP, AppProtocol: "x", Port: 80, NodePort: 30080, TargetPort: "http"}},
		ClientIPTimeoutSeconds: 60, LoadBalancerClass: "c", SourceRanges: []string{"10.0.0.0/8"},
		ExternalTrafficPolicy: provider.Local, InternalTrafficPolicy: provider.Cluster, HealthCheckNodePort: 31000,
		IPFamilies: []provider.IPFamily{provider.IPv6}, IPFamilyPolicy: provider.SingleStack, AllocateNodePorts: true,
		Status: provider.LoadBalancerStatus{Ingress: []provider.Ingress{{Hostname: "lb", Ports: []provider.PortStatus{{Port: 80, Protocol: provider.TCP, Error: "e"}}}}},
	})
	port := service.Spec.Ports[0]
	if port.Protocol != v1.ProtocolUDP || *port.AppProtocol != "x" || port.Port != 80 || port.NodePort != 30080 || port.TargetPort.StrVal != "http" {
		t.Errorf("got %+v", port)
	}
	spec := service.Spec
	if spec.SessionAffinity != v1.ServiceAffinityClientIP || *spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != 60 ||
		*spec.LoadBalancerClass != "c" || spec.ExternalTrafficPolicy != v1.ServiceExternalTrafficPolicyLocal ||
		spec.HealthCheckNodePort != 31000 || spec.IPFamilies[0] != v1.IPv6Protocol ||
		*spec.IPFamilyPolicy != v1.IPFamilyPolicySingleStack || !*spec.AllocateLoadBalancerNodePorts {
		t.Errorf("got %+v", spec)
	}
	back := fromStatus(&service.Status.LoadBalancer).Ingress[0]
	if back.Hostname != "lb" || back.Ports[0].Error != "e" || back.Ports[0].Protocol != provider.TCP {
		t.Errorf("got %+v", back)
	}
}
