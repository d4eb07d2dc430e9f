// Package cloudprovider serves Skysail's contract by a provider that was written for
// k8s.io/cloud-provider: the vendor's Go code as it is, in the sandbox.
//
//	func init() {
//		cloud := cloudprovider.New(cloudprovider.Options{
//			Info: provider.Info{Name: "example", Version: "1.0.0"}, Registered: "example",
//		})
//		identity.Export(cloud)
//		instances.Export(cloud)
//		loadbalancers.Export(cloud)
//	}
//
// Each call creates the vendor's provider again, because a call begins in a new memory:
// GetCloudProvider with the cloud-config of the call, and Initialize with clients of a small
// Kubernetes API, which has what the call has.
package cloudprovider

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	"skysail.dev/provider"
	"skysail.dev/provider/httptransport"
)

// Options say what a vendor's provider does not say without being asked for in the cloud.
type Options struct {
	// Info describes the provider. Without ProviderIDSchemes the scheme is the name. Without
	// PageNodes a call is about at most 8 nodes.
	Info provider.Info
	// Registered is the name that the vendor's package registered by RegisterCloudProvider.
	Registered string
	// CheckConfig returns the problems of a cloud-config without a request; nil for a vendor's
	// provider that has no such function: a wrong cloud-config then fails each call.
	CheckConfig func(text string) []provider.Problem
	// Origins returns the origins of the cloud's API; nil where the cloud-config does not have them.
	Origins func(text string) []string
	// Credential names the operator's credential for a request, which the host then signs or logs in;
	// nil or empty leaves the vendor's own Authorization.
	Credential func(*http.Request) string
	// SetByCredential are other headers that the credentials set, such as X-Auth-Token: those of the
	// vendor's code are not sent with a credential.
	SetByCredential []string
	// RouteTarget says what a route leads to whose node the vendor's ListRoutes looks for in an
	// index of the informer of nodes: that call has no nodes, so the vendor's code gets a name that
	// stands for the value, and the host finds the node by the target. Nil for a vendor whose
	// ListRoutes does not; the informer of nodes has then not synced in that call.
	RouteTarget func(ctx context.Context, vendor cloudprovider.Interface, value string) (provider.Target, error)
	// Serial asks about the nodes of a call, and creates routes, one after the other: for a vendor
	// whose code may not run in several goroutines.
	Serial bool
}

// Cloud is a vendor's provider as a provider of Skysail.
type Cloud struct {
	options Options
	// made makes the vendor's provider; a test replaces it.
	made func(config string) (cloudprovider.Interface, error)
	once sync.Once
	in   cloudprovider.Interface
	err  error
	kube cluster
}

// New returns a provider that exports whatever of it the program exports.
func New(options Options) *Cloud {
	cloud := &Cloud{options: options}
	cloud.made = func(config string) (cloudprovider.Interface, error) {
		if config == "" {
			// Upstream's way to say that there is no cloud-config.
			return cloudprovider.GetCloudProvider(options.Registered, nil)
		}
		return cloudprovider.GetCloudProvider(options.Registered, strings.NewReader(config))
	}
	sendBy(func(request *http.Request) (*http.Response, error) {
		with := httptransport.Transport{SetByCredential: options.SetByCredential}
		if options.Credential != nil {
			with.Credential = options.Credential(request)
		}
		return with.RoundTrip(request)
	})
	return cloud
}

// pageNodes fits the limit httpRequests, 64 by default: vendors' code sends up to seven requests
// for each node (its ID; addresses, type and zone, each by ID and by name), and some for a login.
const pageNodes = 8

// Describe is [provider.Identity]'s, as the methods below.
func (c *Cloud) Describe() provider.Info {
	info := c.options.Info
	info.PageNodes = cmp.Or(info.PageNodes, pageNodes)
	return info
}

func (c *Cloud) CheckConfig(text string) []provider.Problem {
	if c.options.CheckConfig == nil {
		return nil
	}
	return c.options.CheckConfig(text)
}

func (c *Cloud) Origins(text string) []string {
	if c.options.Origins == nil {
		return nil
	}
	return c.options.Origins(text)
}

// vendor returns the vendor's provider of this call.
func (c *Cloud) vendor() (cloudprovider.Interface, error) {
	c.once.Do(func() {
		c.in, c.err = c.made(provider.Config())
		switch {
		case c.err != nil:
			c.err = failed(c.err)
		case c.in == nil:
			c.err = provider.Internal("no package of this program registered the cloud provider %q", c.options.Registered)
		default:
			c.in.Initialize(&c.kube, make(chan struct{}))
			if user, uses := c.in.(cloudprovider.InformerUser); uses {
				user.SetInformers(newFactory(&c.kube))
			}
		}
	})
	return c.in, c.err
}

// failed finds the contract's error whose reaction fits. It is never NotFound: upstream deletes a
// node or forgets a load balancer only where a function returns "does not exist" without an
// error, and an error may be about another object. Upstream repeats every other failure, and so
// does the host after Unavailable.
func failed(err error) error {
	var failure *provider.Failure
	var retry *api.RetryError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cloudprovider.ImplementedElsewhere):
		return provider.ImplementedElsewhere("%v", err)
	case errors.Is(err, cloudprovider.NotImplemented):
		return provider.Unsupported("%v", err)
	case errors.As(err, &retry):
		return provider.RetryAfter(retry.RetryAfter(), "%v", err)
	case errors.As(err, &failure):
		return &provider.Error{Code: provider.AsError(failure).Code, Message: err.Error()}
	}
	return provider.Unavailable("%v", err)
}

func (c *Cloud) balancers() (cloudprovider.LoadBalancer, error) {
	cloud, err := c.vendor()
	if err != nil {
		return nil, err
	}
	balancers, supported := cloud.LoadBalancer()
	if !supported {
		return nil, provider.Unsupported("the cloud provider has no load balancers under this cloud-config")
	}
	return balancers, nil
}

// LoadBalancerName is [provider.LoadBalancers]', as the methods below.
func (c *Cloud) LoadBalancerName(cluster string, service *provider.Service) string {
	object := c.kube.use(service)
	balancers, err := c.balancers()
	if err != nil {
		return cloudprovider.DefaultLoadBalancerName(object)
	}
	return balancers.GetLoadBalancerName(context.Background(), cluster, object)
}

func (c *Cloud) GetLoadBalancer(cluster string, service *provider.Service) (*provider.LoadBalancerStatus, error) {
	defer settle()
	object := c.kube.use(service)
	balancers, err := c.balancers()
	if err != nil {
		return nil, err
	}
	status, exists, err := balancers.GetLoadBalancer(context.Background(), cluster, object)
	if err != nil || !exists {
		return nil, failed(err)
	}
	return fromStatus(status), nil
}

func (c *Cloud) EnsureLoadBalancer(cluster string, service *provider.Service, nodes provider.NodeSet) (*provider.LoadBalancerStatus, error) {
	defer settle()
	object, machines := c.kube.use(service), c.kube.useNodes(nodes, true)
	balancers, err := c.balancers()
	if err != nil {
		return nil, err
	}
	status, err := balancers.EnsureLoadBalancer(context.Background(), cluster, object, machines)
	if err != nil {
		return nil, failed(err)
	}
	if status == nil {
		return nil, provider.Internal("service status returned by EnsureLoadBalancer is nil")
	}
	return fromStatus(status), nil
}

func (c *Cloud) UpdateLoadBalancer(cluster string, service *provider.Service, nodes provider.NodeSet) error {
	defer settle()
	object, machines := c.kube.use(service), c.kube.useNodes(nodes, true)
	balancers, err := c.balancers()
	if err != nil {
		return err
	}
	return failed(balancers.UpdateLoadBalancer(context.Background(), cluster, object, machines))
}

func (c *Cloud) EnsureLoadBalancerDeleted(cluster string, service *provider.Service) error {
	defer settle()
	object := c.kube.use(service)
	balancers, err := c.balancers()
	if err != nil {
		return err
	}
	// As upstream: some vendors fail to delete what does not exist.
	_, exists, err := balancers.GetLoadBalancer(context.Background(), cluster, object)
	if err != nil || !exists {
		return failed(err)
	}
	return failed(balancers.EnsureLoadBalancerDeleted(context.Background(), cluster, object))
}
