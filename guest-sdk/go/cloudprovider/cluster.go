package cloudprovider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"skysail.dev/provider"
)

// cluster is the Kubernetes API that a vendor's provider finds in the sandbox, as a
// cloudprovider.ControllerClientBuilder: the nodes and the Service of the call. An Event becomes an
// Event of the call. Every other request is refused with 403, because 404 would say that the object
// does not exist, and the log has a warning for each. A change of an object is not sent to the
// cluster: the contract has no way for it.
type cluster struct {
	mutex sync.Mutex
	nodes []*v1.Node
	// hasAllNodes says that the nodes are all that a load balancer may have, and not one page of many.
	hasAllNodes bool
	// standsIn says that the call has no nodes, and that a value of an index of nodes gets a name that
	// stands for one.
	standsIn bool
	service  *v1.Service
	// told are the requests about which the log has a warning.
	told map[string]bool
	// made is the client, which takes milliseconds to make in the sandbox.
	made kubernetes.Interface
	once sync.Once
}

// settleMax is more than the goroutines that an Event passes from client-go's recorder to
// RoundTrip.
const settleMax = 64

// settle lets goroutines go on that the vendor's code has begun: client-go's recorder sends Events
// by goroutines, which the end of a call ends. The sandbox has one thread, so each turn here gives
// every goroutine that can run a turn.
func settle() {
	for range settleMax {
		runtime.Gosched()
	}
}

func (c *cluster) use(service *provider.Service) *v1.Service {
	object := toService(service)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.service = object.DeepCopy()
	return object
}

func (c *cluster) useNodes(nodes provider.NodeSet, all bool) []*v1.Node {
	objects := make([]*v1.Node, 0, nodes.Len())
	for index := range nodes.Len() {
		if node, found := nodes.Get(index); found {
			objects = append(objects, toNode(node))
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.nodes, c.hasAllNodes = objects, all
	return objects
}

// useRouteNodes takes the nodes of routes that should be: each has what the routes say about it.
func (c *cluster) useRouteNodes(routes []provider.NewRoute) {
	named := map[string]*v1.Node{}
	var objects []*v1.Node
	for _, route := range routes {
		if known := named[route.Node]; known != nil {
			known.Spec.PodCIDRs = append(known.Spec.PodCIDRs, route.DestinationCIDR)
			continue
		}
		node := toNode(provider.Node{
			Name: route.Node, UID: route.NameHint, ProviderID: route.ProviderID, Addresses: route.Addresses,
			PodCIDRs: []string{route.DestinationCIDR},
		})
		// Nothing is known about it.
		node.Status.Conditions = nil
		named[route.Node], objects = node, append(objects, node)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.nodes, c.hasAllNodes = objects, false
}

// Config is cloudprovider.ControllerClientBuilder's, as the methods below.
func (c *cluster) Config(string) (*rest.Config, error) { return c.config(), nil }

func (c *cluster) ConfigOrDie(string) *rest.Config { return c.config() }

func (c *cluster) Client(string) (kubernetes.Interface, error) { return c.clients(), nil }

func (c *cluster) ClientOrDie(string) kubernetes.Interface { return c.clients() }

// clients is the same for every name: config has nothing that could be wrong or differ.
func (c *cluster) clients() kubernetes.Interface {
	c.once.Do(func() { c.made = kubernetes.NewForConfigOrDie(c.config()) })
	return c.made
}

func (c *cluster) config() *rest.Config {
	json := rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}
	return &rest.Config{Host: "http://kubernetes.default.svc", Transport: c, QPS: -1, ContentConfig: json}
}

// RoundTrip answers a request to the Kubernetes API; nothing of it leaves the program.
func (c *cluster) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		defer request.Body.Close()
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
	}
	status, object := c.answer(request, body)
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
		ContentLength: int64(len(text)),
	}, nil
}

func (c *cluster) answer(request *http.Request, body []byte) (int, any) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	path, query := request.URL.Path, request.URL.Query()
	get := request.Method == http.MethodGet && query.Get("watch") == ""
	selects := query.Get("labelSelector") != "" || query.Get("fieldSelector") != ""
	node, isNode := strings.CutPrefix(path, "/api/v1/nodes/")
	switch {
	case path == "/version":
		return http.StatusOK, version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0"}
	case get && path == "/api/v1/nodes" && c.hasAllNodes && !selects:
		list := v1.NodeList{TypeMeta: kind("NodeList", "v1"), ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for _, node := range c.nodes {
			list.Items = append(list.Items, *node)
		}
		return http.StatusOK, list
	case get && isNode:
		for _, known := range c.nodes {
			if known.Name == node {
				object := known.DeepCopy()
				object.TypeMeta = kind("Node", "v1")
				return http.StatusOK, object
			}
		}
	case get && c.service != nil && path == "/api/v1/namespaces/"+c.service.Namespace+"/services/"+c.service.Name:
		object := c.service.DeepCopy()
		object.TypeMeta = kind("Service", "v1")
		return http.StatusOK, object
	case request.Method == http.MethodPost && strings.HasSuffix(path, "/events"):
		return event(body)
	}
	c.tell(request.Method, path)
	return refused(http.StatusForbidden, metav1.StatusReasonForbidden,
		request.Method+" "+path+": the sandbox has the nodes and the Service of the call, and takes Events")
}

func kind(kind, version string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: version}
}

// event hands an Event to the host: of the core API, whose text is the message, or of
// events.k8s.io, whose text is the note. The answer is the Event as it came.
func event(body []byte) (int, any) {
	var event struct{ Type, Reason, Message, Note string }
	if err := json.Unmarshal(body, &event); err != nil {
		return refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	emit(event.Type, event.Reason, cmp.Or(event.Message, event.Note))
	return http.StatusCreated, json.RawMessage(body)
}

func emit(kind, reason, message string) {
	if kind == v1.EventTypeWarning {
		provider.WarningEvent(reason, "%s", message)
		return
	}
	provider.Event(reason, "%s", message)
}

// tell warns once about each kind of request that has no way out of the sandbox.
func (c *cluster) tell(method, path string) {
	line := method + " " + path
	if c.told[line] {
		return
	}
	if c.told == nil {
		c.told = map[string]bool{}
	}
	c.told[line] = true
	slog.Warn("the cloud provider sent a request to the Kubernetes API that the contract cannot carry: it was answered with 403 Forbidden",
		"method", method, "path", path)
}

func refused(code int32, reason metav1.StatusReason, message string) (int, any) {
	return int(code), metav1.Status{
		TypeMeta: kind("Status", "v1"), Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}
}
