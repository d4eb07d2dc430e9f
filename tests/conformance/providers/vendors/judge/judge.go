// Package judge lets a test call a vendor's Go cloud provider, the code of the vendor's
// cloud-controller-manager: each line of JSON on the standard input is a question, and the next
// line on the standard output is its answer. The program ends with its standard input.
package judge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
)

// callTime bounds a call of the provider: on a busy machine a call of many requests takes minutes.
const callTime = 5 * time.Minute

// A question names the operation in Do, which decides the fields that it needs.
type question struct {
	Do string `json:"do"`
	// Config and Environment are for the operation open: the cloud-config, and the variables from
	// which the vendor's client takes its credentials.
	Config      string            `json:"config"`
	Environment map[string]string `json:"environment"`
	// Cloud is the number that open has answered.
	Cloud   int         `json:"cloud"`
	Cluster string      `json:"cluster"`
	Service *v1.Service `json:"service"`
	// Nodes are the nodes of the Service or those to describe, and for open all nodes of the cluster.
	Nodes []*v1.Node `json:"nodes"`
	// Route is the route to create or to delete.
	Route *cloudprovider.Route `json:"route"`
}

// An answer has Failed if the provider returned an error, and Error if the question is wrong.
type answer struct {
	Cloud *int `json:"cloud,omitempty"`
	// Annotations are those of the Service after ensure: a provider may add some.
	Annotations map[string]string      `json:"annotations,omitempty"`
	Machines    []machine              `json:"machines,omitempty"`
	Routes      []*cloudprovider.Route `json:"routes,omitempty"`
	Failed      string                 `json:"failed,omitempty"`
	Error       string                 `json:"error,omitempty"`
}

// Serve answers questions with the provider of this name.
func Serve(provider string) {
	j := judge{provider: provider}
	fmt.Println(`{"serves":true}`)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var q question
		a := &answer{}
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			a.Error = err.Error()
		} else if err := j.answer(&q, a); err != nil {
			a.Error = err.Error()
		}
		line, err := json.Marshal(a)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(line))
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

type judge struct {
	provider string
	clouds   []*cloud
}

// A cloud is a provider with its API server in memory.
type cloud struct {
	cloudprovider.Interface
	api kubernetes.Interface
	// routes is what Routes has returned: as in the route controller, once.
	routes cloudprovider.Routes
}

func (j *judge) answer(q *question, a *answer) error {
	if q.Do == "open" {
		return j.open(q, a)
	}
	if q.Cloud < 0 || q.Cloud >= len(j.clouds) {
		return fmt.Errorf("there is no cloud %d", q.Cloud)
	}
	cloud := j.clouds[q.Cloud]
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if q.Do == "describe" {
		for _, node := range q.Nodes {
			a.Machines = append(a.Machines, describe(ctx, cloud, node))
		}
		return nil
	}
	if strings.HasSuffix(q.Do, "-route") || q.Do == "routes" {
		return answerRoutes(ctx, cloud, q, a)
	}
	balancer, ok := cloud.LoadBalancer()
	if !ok {
		return errors.New("the provider has no load balancers")
	}
	if q.Service == nil {
		return errors.New("the question has no service")
	}
	services := cloud.api.CoreV1().Services(q.Service.Namespace)
	var failed error
	switch q.Do {
	case "ensure":
		stored, err := services.Update(ctx, q.Service, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			stored, err = services.Create(ctx, q.Service, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
		_, failed = balancer.EnsureLoadBalancer(ctx, q.Cluster, stored.DeepCopy(), q.Nodes)
		after, err := services.Get(ctx, q.Service.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		a.Annotations = after.Annotations
	case "update":
		failed = balancer.UpdateLoadBalancer(ctx, q.Cluster, q.Service, q.Nodes)
	case "delete":
		failed = balancer.EnsureLoadBalancerDeleted(ctx, q.Cluster, q.Service)
		if err := services.Delete(ctx, q.Service.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	default:
		return fmt.Errorf("%q is no operation", q.Do)
	}
	if failed != nil {
		a.Failed = failed.Error()
	}
	return nil
}

// routeHint is what the route controller of k8s.io/cloud-provider passes: the UID of the node.
const routeHint = "0a1b2c3d-4e5f-6789-abcd-ef0123456789"

// answerRoutes lists the routes, or creates or deletes one.
func answerRoutes(ctx context.Context, cloud *cloud, q *question, a *answer) error {
	if cloud.routes == nil {
		routes, ok := cloud.Routes()
		if !ok {
			return errors.New("the provider has no routes")
		}
		cloud.routes = routes
	}
	routes := cloud.routes
	var failed error
	switch {
	case q.Do == "routes":
		a.Routes, failed = routes.ListRoutes(ctx, q.Cluster)
	case q.Route == nil:
		return errors.New("the question has no route")
	case q.Do == "create-route":
		failed = routes.CreateRoute(ctx, q.Cluster, routeHint, q.Route)
	case q.Do == "delete-route":
		failed = routes.DeleteRoute(ctx, q.Cluster, q.Route)
	default:
		return fmt.Errorf("%q is no operation", q.Do)
	}
	if failed != nil {
		a.Failed = failed.Error()
	}
	return nil
}

// open starts a provider, as the vendor's manager does.
func (j *judge) open(q *question, a *answer) error {
	for name, value := range q.Environment {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	provider, err := cloudprovider.GetCloudProvider(j.provider, strings.NewReader(q.Config))
	if err != nil {
		return err
	}
	if provider == nil {
		return fmt.Errorf("no provider is registered as %q", j.provider)
	}
	objects := make([]runtime.Object, 0, len(q.Nodes))
	for _, node := range q.Nodes {
		objects = append(objects, node)
	}
	client := fake.NewClientset(objects...)
	// Providers run as long as the program.
	stop := make(chan struct{})
	provider.Initialize(clients{client}, stop)
	if user, ok := provider.(cloudprovider.InformerUser); ok {
		factory := informers.NewSharedInformerFactory(client, 0)
		user.SetInformers(factory)
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
	}
	number := len(j.clouds)
	j.clouds = append(j.clouds, &cloud{Interface: provider, api: client})
	a.Cloud = &number
	return nil
}

// clients gives a provider an API server in memory, for its Events and its list of nodes.
type clients struct{ client kubernetes.Interface }

func (c clients) Config(string) (*rest.Config, error)         { return &rest.Config{}, nil }
func (c clients) ConfigOrDie(string) *rest.Config             { return &rest.Config{} }
func (c clients) Client(string) (kubernetes.Interface, error) { return c.client, nil }
func (c clients) ClientOrDie(string) kubernetes.Interface     { return c.client }
