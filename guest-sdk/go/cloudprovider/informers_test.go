package cloudprovider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	"skysail.dev/provider"
	"skysail.dev/provider/providertest"
)

// informed is a vendor whose code uses informers, as those of AWS, GCE and Azure do.
type informed struct {
	*vendor
	factory informers.SharedInformerFactory
	// nodes is the cache of the vendor's own, which a handler fills.
	nodes []string
	// asks is what the vendor's code does with its informers in a call.
	asks func(*informed) error
}

func (i *informed) SetInformers(factory informers.SharedInformerFactory) {
	i.factory = factory
	nodes := factory.Core().V1().Nodes().Informer()
	err := nodes.AddIndexers(cache.Indexers{"machine": func(object any) ([]string, error) {
		return []string{strings.TrimPrefix(object.(*v1.Node).Spec.ProviderID, "vendor://")}, nil
	}})
	if err != nil {
		panic(err)
	}
	_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		i.nodes = append(i.nodes, object.(*v1.Node).Name)
	}})
	if err != nil {
		panic(err)
	}
}

func (i *informed) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return i, true }
func (i *informed) InstancesV2() (cloudprovider.InstancesV2, bool)   { return i, true }
func (i *informed) Routes() (cloudprovider.Routes, bool)             { return i, true }

func (i *informed) EnsureLoadBalancer(context.Context, string, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
	return &v1.LoadBalancerStatus{}, i.asks(i)
}

func (i *informed) InstanceExists(context.Context, *v1.Node) (bool, error) { return true, i.asks(i) }

// ListRoutes finds the nodes of machines as that of AWS does.
func (i *informed) ListRoutes(context.Context, string) ([]*cloudprovider.Route, error) {
	nodes := i.factory.Core().V1().Nodes().Informer()
	if !nodes.HasSynced() {
		return nil, errors.New("node informer has not synced yet")
	}
	var routes []*cloudprovider.Route
	for _, machine := range []string{"m-1", "m-2", "m-1"} {
		keys, err := nodes.GetIndexer().IndexKeys("machine", machine)
		if err != nil || len(keys) != 1 {
			return nil, fmt.Errorf("%d nodes of %s: %w", len(keys), machine, err)
		}
		routes = append(routes, &cloudprovider.Route{Name: "to " + machine, TargetNode: types.NodeName(keys[0])})
	}
	return append(routes, &cloudprovider.Route{Name: "to b", TargetNode: "b"}), nil
}

func (i *informed) CreateRoute(_ context.Context, _ string, _ string, route *cloudprovider.Route) error {
	node, err := i.factory.Core().V1().Nodes().Lister().Get(string(route.TargetNode))
	if err == nil && (node.Spec.ProviderID != "vendor://m-1" || !slices.Equal(node.Spec.PodCIDRs, []string{"10.244.1.0/24", "fd00::/64"})) {
		return fmt.Errorf("got %+v", node.Spec)
	}
	return err
}

func (i *informed) DeleteRoute(context.Context, string, *cloudprovider.Route) error { return nil }

// logged returns where package log/slog writes until the test ends.
func logged(t *testing.T) *bytes.Buffer {
	before, text := slog.Default(), &bytes.Buffer{}
	slog.SetDefault(slog.New(slog.NewTextHandler(text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return text
}

func ofInformed(t *testing.T, options Options, asks func(*informed) error) (*Cloud, *informed) {
	t.Helper()
	providertest.New(t)
	options.Info = provider.Info{Name: "vendor"}
	cloud, in := New(options), &informed{vendor: &vendor{}, asks: asks}
	cloud.made = func(string) (cloudprovider.Interface, error) { return in, nil }
	return cloud, in
}

func twoNodes() provider.NodeSet {
	return provider.NewNodes(provider.Node{Name: "a", ProviderID: "vendor://m-1"}, provider.Node{Name: "b", ProviderID: "vendor://m-2"})
}

func TestTheInformersOfALoadBalancerHaveItsNodesAndItsService(t *testing.T) {
	logs := logged(t)
	cloud, in := ofInformed(t, Options{}, func(i *informed) error {
		core := i.factory.Core().V1()
		i.factory.Start(nil)
		if !core.Nodes().Informer().HasSynced() || !core.Services().Informer().HasSynced() {
			return errors.New("no sync")
		}
		listed, err := core.Nodes().Lister().List(labels.Everything())
		if err != nil || len(listed) != 2 {
			return fmt.Errorf("listed %v: %w", listed, err)
		}
		keys, err := core.Nodes().Informer().GetIndexer().IndexKeys("machine", "m-2")
		if err != nil || !slices.Equal(keys, []string{"b"}) {
			return fmt.Errorf("found %v: %w", keys, err)
		}
		if keys, err := core.Nodes().Informer().GetIndexer().IndexKeys("machine", "m-3"); err != nil || len(keys) > 0 {
			return fmt.Errorf("found %v: %w", keys, err)
		}
		service, err := core.Services().Lister().Services("ns").Get("web")
		if err != nil || service.UID != "u" {
			return fmt.Errorf("got %v: %w", service, err)
		}
		// "Not found" would say that these do not exist.
		if _, err := core.Nodes().Lister().Get("c"); !apierrors.IsForbidden(err) {
			return fmt.Errorf("another node: %w", err)
		}
		if _, err := core.Services().Lister().Services("ns").Get("other"); !apierrors.IsForbidden(err) {
			return fmt.Errorf("another Service: %w", err)
		}
		return nil
	})
	if _, err := cloud.EnsureLoadBalancer("c", &provider.Service{Namespace: "ns", Name: "web", UID: "u"}, twoNodes()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(in.nodes, []string{"a", "b"}) {
		t.Errorf("the handler was told about %v", in.nodes)
	}
	if logs.Len() > 0 {
		t.Errorf("logged %v", logs)
	}
}

func TestAnInformerWithoutObjectsHasNotSyncedAndSaysNothing(t *testing.T) {
	logs := logged(t)
	cloud, _ := ofInformed(t, Options{}, func(i *informed) error {
		if i.factory.Discovery().V1().EndpointSlices().Informer().HasSynced() || i.factory.Apps().V1().Deployments().Informer().HasSynced() {
			return errors.New("there is nothing to sync")
		}
		_, err := i.factory.Core().V1().Secrets().Lister().Secrets("ns").Get("key")
		return err
	})
	_, err := cloud.EnsureLoadBalancer("c", &provider.Service{Namespace: "ns", Name: "web"}, twoNodes())
	if err == nil || !strings.Contains(err.Error(), "secrets \"ns/key\" is forbidden: the sandbox has the objects of the call only") {
		t.Errorf("got %v", err)
	}
	if text := logs.String(); !strings.Contains(text, "endpointslices") || !strings.Contains(text, "secrets") {
		t.Errorf("logged %s", text)
	}
}

func TestAListThatWouldBeIncompleteIsRefused(t *testing.T) {
	// The nodes of this call are one page of the cluster's.
	cloud, in := ofInformed(t, Options{}, func(i *informed) error {
		if node, err := i.factory.Core().V1().Nodes().Lister().Get("b"); err != nil || node.Spec.ProviderID != "vendor://m-2" {
			return fmt.Errorf("got %v: %w", node, err)
		}
		listed, err := i.factory.Core().V1().Nodes().Lister().List(labels.Everything())
		return fmt.Errorf("listed %v: %w", listed, err)
	})
	results, err := cloud.DescribeInstances(twoNodes(), provider.State)
	if err != nil || len(results) != 2 {
		t.Fatalf("got %v, %v", results, err)
	}
	for _, result := range results {
		if got := provider.AsError(result.Err); got.Code != provider.CodeInternal || !strings.Contains(got.Message, "the cloud provider lists nodes: nodes is forbidden") {
			t.Errorf("got %+v", got)
		}
	}
	if !slices.Equal(in.nodes, []string{"a", "b"}) {
		t.Errorf("the handler was told about %v", in.nodes)
	}
}

func TestTheHostFindsTheNodeOfAMachineThatAVendorLooksForInAnIndex(t *testing.T) {
	asked := make(chan string, 10)
	cloud, _ := ofInformed(t, Options{RouteTarget: func(_ context.Context, in cloudprovider.Interface, machine string) (provider.Target, error) {
		asked <- machine
		return provider.Target{ProviderID: in.ProviderName() + "://" + machine}, nil
	}}, nil)
	routes, err := cloud.ListRoutes("c")
	if err != nil {
		t.Fatal(err)
	}
	var targets []provider.Target
	for _, route := range routes {
		targets = append(targets, route.Target)
	}
	want := []provider.Target{{ProviderID: "vendor://m-1"}, {ProviderID: "vendor://m-2"}, {ProviderID: "vendor://m-1"}, {Node: "b"}}
	if !reflect.DeepEqual(targets, want) || len(asked) != 2 {
		t.Errorf("got %+v after %d questions", targets, len(asked))
	}
}

func TestRoutesAreNotListedWhereNodesAreMissing(t *testing.T) {
	failing := func(context.Context, cloudprovider.Interface, string) (provider.Target, error) {
		return provider.Target{}, errors.New("the machine is gone")
	}
	for want, options := range map[string]Options{
		"node informer has not synced yet": {}, "the machine is gone\nthe machine is gone": {RouteTarget: failing},
	} {
		cloud, _ := ofInformed(t, options, nil)
		routes, err := cloud.ListRoutes("c")
		if got := provider.AsError(err); routes != nil || got.Code != provider.CodeUnavailable || got.Message != want {
			t.Errorf("got %v, %+v", routes, got)
		}
	}
}

func TestAVendorFindsTheNodeOfANewRoute(t *testing.T) {
	cloud, _ := ofInformed(t, Options{Serial: true}, nil)
	route := provider.NewRoute{Node: "a", NameHint: "u", ProviderID: "vendor://m-1", DestinationCIDR: "10.244.1.0/24"}
	second := route
	second.DestinationCIDR = "fd00::/64"
	results, err := cloud.CreateRoutes("c", []provider.NewRoute{route, second})
	if err != nil || errors.Join(results...) != nil {
		t.Errorf("got %v, %v", results, err)
	}
}
