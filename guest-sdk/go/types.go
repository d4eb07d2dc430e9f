package provider

// Identity is implemented by every provider. Its methods make no request and are called before any
// other function.
type Identity interface {
	Describe() Info
	// CheckConfig returns every problem of a cloud-config, with the line of each.
	CheckConfig(text string) []Problem
	// Origins returns the origins (scheme, host, port) of the cloud's API for a cloud-config, so that
	// the host can compare them with the egress rules.
	Origins(text string) []string
}

// Instances is about the machines behind nodes.
type Instances interface {
	// DescribeInstances returns one result for each node, in the order of the nodes. NotFound deletes
	// the node, so answer it only where the cloud confirms that there is no such machine. An error of
	// the function itself is about the whole call.
	DescribeInstances(nodes NodeSet, detail Detail) ([]Result[Instance], error)
}

// LoadBalancers is about the load balancers of Services.
type LoadBalancers interface {
	// LoadBalancerName returns the name of the load balancer in the cloud.
	LoadBalancerName(cluster string, service *Service) string
	// GetLoadBalancer returns the status of the load balancer; nil where there is none.
	GetLoadBalancer(cluster string, service *Service) (*LoadBalancerStatus, error)
	EnsureLoadBalancer(cluster string, service *Service, nodes NodeSet) (*LoadBalancerStatus, error)
	// UpdateLoadBalancer changes the nodes of an existing load balancer, and nothing else.
	UpdateLoadBalancer(cluster string, service *Service, nodes NodeSet) error
	// EnsureLoadBalancerDeleted succeeds where there is nothing to delete.
	EnsureLoadBalancerDeleted(cluster string, service *Service) error
}

// LoadBalancerInventory lists and deletes load balancers without their Services.
type LoadBalancerInventory interface {
	ListLoadBalancers(cluster string) ([]Owned, error)
	// DeleteLoadBalancer deletes a load balancer that ListLoadBalancers returned, unless another
	// Service uses it by now. The Service is the one that was listed; nil where none was.
	DeleteLoadBalancer(cluster, name string, service *ServiceRef) error
}

// Routes is about routes to the pod CIDRs of nodes.
type Routes interface {
	ListRoutes(cluster string) ([]Route, error)
	// CreateRoutes returns one error for each route, in the order of the routes; nil for success.
	CreateRoutes(cluster string, routes []NewRoute) ([]error, error)
	DeleteRoutes(cluster string, routes []Route) ([]error, error)
}

// PersistentVolumeLabels is about the zones of volumes.
type PersistentVolumeLabels interface {
	VolumeLabels(cluster string, volume *PersistentVolume) (map[string]string, error)
}

// Result is a value or an error.
type Result[T any] struct {
	Value T
	Err   error
}

// Info describes a provider.
type Info struct {
	Name, Version, Description string
	// ProviderIDSchemes are the schemes of the provider's own provider IDs; nil stands for Name, and
	// an empty slice for none: the operator then claims prefixes of provider IDs.
	ProviderIDSchemes []string
	// WithoutClusterID says that the provider works without a name of the cluster.
	WithoutClusterID bool
	// SerialLoadBalancers asks for one call about load balancers at a time.
	SerialLoadBalancers bool
	// PageNodes is the most nodes that DescribeInstances gets at once, 1 to 500; 0 for the host's 500.
	PageNodes int
	Extra     map[string]string
}

// Severity of a [Problem].
type Severity uint8

const (
	// Fatal refuses the cloud-config.
	Fatal Severity = iota
	// Warning does not prevent calls.
	Warning
)

// Problem of a cloud-config.
type Problem struct {
	Severity Severity
	// Line counts from 1; 0 where no line is to blame.
	Line uint32
	// Key is `Section.key`.
	Key, Message string
}

// Detail is how much of an instance the host asks for.
type Detail uint8

const (
	// State is existence and Shutdown; everything else may be empty.
	State Detail = iota
	// Metadata is every field.
	Metadata
)

// Keys of Extra that the host knows. The value of the first two is "true".
const (
	// WithoutProviderID, of an [Instance]: the cloud has no IDs, and ProviderID is empty.
	WithoutProviderID = "without-provider-id"
	// EnableNodeAddresses, of a [Route]: the host compares TargetAddresses with the node's.
	EnableNodeAddresses = "enable-node-addresses"
	// SystemUUID, of a [Node]: the UUID that the machine reports.
	SystemUUID = "system-uuid"
)

// Instance is a machine behind a node.
type Instance struct {
	ProviderID                 string
	Shutdown                   bool
	InstanceType, Zone, Region string
	Addresses                  []NodeAddress
	Labels, Extra              map[string]string
}

// AddressType is Kubernetes' type of a node address.
type AddressType string

// The types that Kubernetes knows.
const (
	Hostname    AddressType = "Hostname"
	InternalIP  AddressType = "InternalIP"
	ExternalIP  AddressType = "ExternalIP"
	InternalDNS AddressType = "InternalDNS"
	ExternalDNS AddressType = "ExternalDNS"
)

// NodeAddress is an address of a node.
type NodeAddress struct {
	Type    AddressType
	Address string
}

// Node is a node of the cluster.
type Node struct {
	Name, UID string
	// ProviderID is empty before the node is initialised.
	ProviderID                 string
	Addresses                  []NodeAddress
	Labels, Annotations, Extra map[string]string
	PodCIDRs                   []string
	Ready                      bool
}

// Protocol of a port.
type Protocol string

// Kubernetes' protocols.
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// IPFamily of an address.
type IPFamily string

// Kubernetes' IP families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// TrafficPolicy is Kubernetes' external or internal traffic policy.
type TrafficPolicy string

// Kubernetes' traffic policies.
const (
	Cluster TrafficPolicy = "Cluster"
	Local   TrafficPolicy = "Local"
)

// IPFamilyPolicy is Kubernetes' policy for the IP families of a Service.
type IPFamilyPolicy string

// Kubernetes' policies.
const (
	SingleStack      IPFamilyPolicy = "SingleStack"
	PreferDualStack  IPFamilyPolicy = "PreferDualStack"
	RequireDualStack IPFamilyPolicy = "RequireDualStack"
)

// IPMode is Kubernetes' mode of an ingress IP.
type IPMode string

// Kubernetes' modes.
const (
	VIP   IPMode = "VIP"
	Proxy IPMode = "Proxy"
)

// ServicePort is a port of a Service.
type ServicePort struct {
	Name     string
	Protocol Protocol
	// AppProtocol is empty where the Service names none.
	AppProtocol    string
	Port, NodePort uint16
	// TargetPort is a number or a name.
	TargetPort string
	Extra      map[string]string
}

// PortStatus is the state of one port of an [Ingress].
type PortStatus struct {
	Port     uint16
	Protocol Protocol
	// Error is empty where the port serves.
	Error string
}

// Ingress is one address of a load balancer: an IP or a host name.
type Ingress struct {
	IP, Hostname string
	// IPMode is empty where the provider does not say.
	IPMode IPMode
	Ports  []PortStatus
	Extra  map[string]string
}

// LoadBalancerStatus is what Kubernetes shows of a load balancer.
type LoadBalancerStatus struct {
	Ingress []Ingress
}

// Service is a Service of type LoadBalancer.
type Service struct {
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
	Ports                []ServicePort
	// ClientIPTimeoutSeconds is the timeout of the session affinity ClientIP; 0 without affinity.
	ClientIPTimeoutSeconds uint32
	// LoadBalancerIP and LoadBalancerClass are empty where the Service names none.
	LoadBalancerIP, LoadBalancerClass            string
	SourceRanges, ExternalIPs                    []string
	ExternalTrafficPolicy, InternalTrafficPolicy TrafficPolicy
	// HealthCheckNodePort is 0 where the Service has none.
	HealthCheckNodePort uint16
	IPFamilies          []IPFamily
	// IPFamilyPolicy is empty where the Service names none.
	IPFamilyPolicy    IPFamilyPolicy
	AllocateNodePorts bool
	Status            LoadBalancerStatus
	Extra             map[string]string
}

// ServiceRef names a Service.
type ServiceRef struct {
	Namespace, Name, UID string
}

// Owned is a load balancer that the cluster owns.
type Owned struct {
	Name string
	// Service is nil where the cloud does not know the Service.
	Service *ServiceRef
	Extra   map[string]string
}

// Target is what a route leads to: one of the fields, or none of them.
type Target struct {
	Node, ProviderID, Address string
}

// Route is a route of the cloud.
type Route struct {
	// Name is the cloud's name of the route.
	Name            string
	Target          Target
	TargetAddresses []NodeAddress
	DestinationCIDR string
	Blackhole       bool
	Extra           map[string]string
}

// NewRoute is a route that should be.
type NewRoute struct {
	NameHint, Node string
	// ProviderID is empty where the node has none.
	ProviderID      string
	Addresses       []NodeAddress
	DestinationCIDR string
	Extra           map[string]string
}

// PersistentVolume is a volume without zone labels.
type PersistentVolume struct {
	Name, UID            string
	Labels, Annotations  map[string]string
	StorageClass, Source string
	// Driver and Handle are the volume's driver and its ID in the cloud, as far as Source has them.
	Driver, Handle    string
	Attributes, Extra map[string]string
}
