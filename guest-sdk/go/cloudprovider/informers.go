package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"
)

// factory is what a vendor's SetInformers gets. An informer has what the call has, from its first
// moment and without a goroutine: nothing is listed or watched, and nothing changes in a call.
//
// An informer must not say that an object does not exist because the call does not have the object:
// a lister's Get is then refused, and so is a List that would be incomplete. The informers of other
// groups than core and discovery are client-go's, which nothing starts.
type factory struct {
	informers.SharedInformerFactory
	kube  *cluster
	mutex sync.Mutex
	made  map[reflect.Type]cache.SharedIndexInformer
}

func newFactory(kube *cluster) *factory {
	return &factory{
		SharedInformerFactory: informers.NewSharedInformerFactory(kube.clients(), 0), kube: kube,
		made: map[reflect.Type]cache.SharedIndexInformer{},
	}
}

// Core is informers.SharedInformerFactory's, as the methods below.
func (f *factory) Core() core.Interface { return core.New(f, metav1.NamespaceAll, nil) }

func (f *factory) Discovery() discovery.Interface { return discovery.New(f, metav1.NamespaceAll, nil) }

// Start starts nothing: client-go's informers would ask for their lists for ever.
func (f *factory) Start(<-chan struct{}) {}

func (f *factory) StartWithContext(context.Context) {}

func (f *factory) InformerFor(object runtime.Object, made internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	kind := reflect.TypeOf(object)
	if known := f.made[kind]; known != nil {
		return known
	}
	// Never run: client-go's store and indexers.
	inner := made(f.kube.clients(), 0)
	in := informer{SharedIndexInformer: inner, indexer: indexer{Indexer: inner.GetIndexer()}}
	in.objects, in.indexer.coverage = f.kube.objects(object)
	in.indexer.resource = strings.ToLower(kind.Elem().Name()) + "s"
	if len(in.objects) == 0 && in.indexer.coverage == partial {
		slog.Warn("the cloud provider uses an informer of objects that the call does not have: a lister's Get and List are refused",
			"resource", in.indexer.resource)
	}
	if err := inner.GetIndexer().Replace(in.objects, "1"); err != nil {
		// The functions of client-go that find a key fail for no object of the API.
		panic(err)
	}
	f.made[kind] = &in
	return &in
}

// coverage is how much of a cluster's objects of one kind a call has.
type coverage int

const (
	// partial: the objects that the call is about, and others exist.
	partial coverage = iota
	// indexed: none, and for each value of an index there is an answer that stands for one.
	indexed
	// complete: all of which the vendor's code may make use.
	complete
)

// objects returns the objects of this kind that the call has.
func (c *cluster) objects(kind runtime.Object) ([]any, coverage) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var objects []any
	switch kind.(type) {
	case *v1.Node:
		for _, node := range c.nodes {
			objects = append(objects, node)
		}
		switch {
		case c.hasAllNodes:
			return objects, complete
		case c.standsIn:
			return objects, indexed
		}
	case *v1.Service:
		if c.service != nil {
			objects = append(objects, c.service)
		}
	}
	return objects, partial
}

// informer is one of client-go's that never runs, and that has synced where the call has objects.
type informer struct {
	cache.SharedIndexInformer
	indexer indexer
	objects []any
}

// HasSynced is cache.SharedIndexInformer's, as the methods below.
func (i *informer) HasSynced() bool { return len(i.objects) > 0 || i.indexer.coverage != partial }

func (i *informer) HasSyncedChecker() cache.DoneChecker {
	if i.HasSynced() {
		return synced{}
	}
	return i.SharedIndexInformer.HasSyncedChecker()
}

func (i *informer) GetStore() cache.Store { return &i.indexer }

func (i *informer) GetIndexer() cache.Indexer { return &i.indexer }

func (i *informer) Run(stop <-chan struct{}) { <-stop }

func (i *informer) RunWithContext(ctx context.Context) { <-ctx.Done() }

func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

func (i *informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithOptions tells the handler about each object before it returns.
func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
	if err != nil {
		return nil, err
	}
	for _, object := range i.objects {
		handler.OnAdd(object, true)
	}
	return registered{registration}, nil
}

// registered has been told everything.
type registered struct {
	cache.ResourceEventHandlerRegistration
}

func (registered) HasSynced() bool { return true }

func (registered) HasSyncedChecker() cache.DoneChecker { return synced{} }

type synced struct{}

func (synced) Name() string { return "the objects of the call" }

func (synced) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// indexer refuses to say about objects that the call does not have that they do not exist.
type indexer struct {
	cache.Indexer
	coverage coverage
	resource string
}

// absent is the error for an object, or for all objects where the name is empty. The API of the
// sandbox answers with the same code.
func (i *indexer) absent(name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: i.resource}, name, errors.New("the sandbox has the objects of the call only"))
}

// Get is cache.Indexer's, as the methods below.
func (i *indexer) Get(object any) (any, bool, error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return nil, false, err
	}
	return i.GetByKey(key)
}

func (i *indexer) GetByKey(key string) (any, bool, error) {
	object, found, err := i.Indexer.GetByKey(key)
	if err == nil && !found {
		return nil, false, i.absent(key)
	}
	return object, found, err
}

// refuse panics where a list has no other way to say that it would be incomplete: the call ends
// with the text.
func (i *indexer) refuse() {
	if i.coverage != complete {
		panic(fmt.Errorf("the cloud provider lists %s: %w", i.resource, i.absent("")))
	}
}

func (i *indexer) List() []any {
	i.refuse()
	return i.Indexer.List()
}

func (i *indexer) ListKeys() []string {
	i.refuse()
	return i.Indexer.ListKeys()
}

func (i *indexer) ListIndexFuncValues(index string) []string {
	i.refuse()
	return i.Indexer.ListIndexFuncValues(index)
}

// stands begins the name of a node that stands for a value of an index. No node has a name with a
// slash.
const stands = "skysail.dev/indexed/"

func (i *indexer) IndexKeys(index, value string) ([]string, error) {
	keys, err := i.Indexer.IndexKeys(index, value)
	switch {
	case err != nil || len(keys) > 0 || i.coverage == complete:
		return keys, err
	case i.coverage == indexed:
		return []string{stands + value}, nil
	}
	return nil, i.absent(value)
}

func (i *indexer) ByIndex(index, value string) ([]any, error) {
	objects, err := i.Indexer.ByIndex(index, value)
	switch {
	case err != nil || len(objects) > 0 || i.coverage == complete:
		return objects, err
	case i.coverage == indexed:
		return []any{&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: stands + value}}}, nil
	}
	return nil, i.absent(value)
}

func (i *indexer) Index(index string, object any) ([]any, error) {
	objects, err := i.Indexer.Index(index, object)
	if err == nil && len(objects) == 0 && i.coverage != complete {
		return nil, i.absent("")
	}
	return objects, err
}
