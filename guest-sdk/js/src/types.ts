import type { ProviderError } from "./errors.js";

/**
 * Values by key: labels, annotations, fields of the contract. Those of the host have no prototype.
 */
export type Fields = { [key: string]: string | undefined };

/** Kubernetes' type of a node address. */
export type AddressType = "Hostname" | "InternalIP" | "ExternalIP" | "InternalDNS" | "ExternalDNS" | (string & {});
export type Protocol = "TCP" | "UDP" | "SCTP";
export type IPFamily = "IPv4" | "IPv6";
export type IPFamilyPolicy = "SingleStack" | "PreferDualStack" | "RequireDualStack";
export type TrafficPolicy = "Cluster" | "Local";
export type IPMode = "VIP" | "Proxy";

/** An address of a node. */
export interface NodeAddress {
  type: AddressType;
  address: string;
}

/** A node of the cluster. */
export interface Node {
  name: string;
  uid: string;
  /** null before the node is initialised. */
  providerId: string | null;
  addresses: NodeAddress[];
  labels: Fields;
  annotations: Fields;
  podCidrs: string[];
  ready: boolean;
  extra: Fields;
}

/**
 * The nodes of a call, sorted by name. They stay with the host until a function asks for them: ask
 * for columns of all nodes where one field is enough.
 */
export interface NodeSet {
  readonly length: number;
  /** Equal digests mean equal sets, with the precision of a number: 53 bits. */
  digest(): number;
  names(): string[];
  /** null for a node that is not initialised. */
  providerIds(): (string | null)[];
  /** All addresses of one type of each node. */
  addresses(type: AddressType): string[][];
  /** The value of a label of each node; null where the node does not have the label. */
  label(key: string): (string | null)[];
  /** One whole node; null beyond the end. */
  get(index: number): Node | null;
}

/** Describes a provider. */
export interface Info {
  /** At most 63 lower-case letters, digits and dashes. */
  name: string;
  version: string;
  description: string;
  /** Schemes of the provider IDs; by default the name. None: the operator claims prefixes. */
  providerIdSchemes?: string[];
  /** The provider works without a name of the cluster. */
  withoutClusterId?: boolean;
  /** Asks for one call about load balancers at a time. */
  serialLoadBalancers?: boolean;
  /** The most nodes that `instances.describe` gets at once: 1 to 500, the default. */
  pageNodes?: number;
  extra?: Fields;
}

/** A finding about a cloud-config. */
export interface Problem {
  /** "fatal" refuses the cloud-config; "warning" does not prevent calls. */
  severity: "fatal" | "warning";
  /** From 1; 0 where no line is to blame. */
  line: number;
  /** `Section.key`. */
  key: string;
  message: string;
}

/** "state" asks for existence and `shutdown` only; "metadata" for every field. */
export type Detail = "state" | "metadata";

/** The machine behind a node. Absent texts are empty. */
export interface Instance {
  /** Absent only with `withoutProviderId`. */
  providerId?: string;
  shutdown?: boolean;
  instanceType?: string;
  zone?: string;
  region?: string;
  addresses?: NodeAddress[];
  labels?: Fields;
  /** The cloud has no IDs of machines. */
  withoutProviderId?: boolean;
  extra?: Fields;
}

/** A port of a Service. */
export interface ServicePort {
  name: string;
  protocol: Protocol;
  appProtocol: string | null;
  port: number;
  /** 0 where none is allocated. */
  nodePort: number;
  /** A number or a name. */
  targetPort: string;
  extra: Fields;
}

/** The state of one port of an `Ingress`. */
export interface PortStatus {
  port: number;
  protocol: Protocol;
  error?: string | null;
}

/** One address of a load balancer: an IP or a host name. */
export interface Ingress {
  ip?: string | null;
  hostname?: string | null;
  ipMode?: IPMode | null;
  ports?: PortStatus[];
  extra?: Fields;
}

/** What Kubernetes shows of a load balancer. */
export interface LoadBalancerStatus {
  ingress: Ingress[];
}

/** A Service of type LoadBalancer. */
export interface Service {
  namespace: string;
  name: string;
  uid: string;
  labels: Fields;
  annotations: Fields;
  ports: ServicePort[];
  /** Timeout of the session affinity ClientIP in seconds; 0 without affinity. */
  clientIPTimeoutSeconds: number;
  loadBalancerIP: string | null;
  loadBalancerClass: string | null;
  sourceRanges: string[];
  externalIPs: string[];
  externalTrafficPolicy: TrafficPolicy;
  internalTrafficPolicy: TrafficPolicy;
  /** 0 where the Service has none. */
  healthCheckNodePort: number;
  ipFamilies: IPFamily[];
  ipFamilyPolicy: IPFamilyPolicy | null;
  allocateNodePorts: boolean;
  status: LoadBalancerStatus;
  extra: Fields;
}

/** Names a Service. */
export interface ServiceRef {
  namespace: string;
  name: string;
  uid: string;
}

/** A load balancer that the cluster owns. */
export interface Owned {
  name: string;
  /** Absent where the cloud does not know the Service. */
  service?: ServiceRef | null;
  extra?: Fields;
}

/** What a route leads to; null where the cloud does not say. */
export type Target = { node: string } | { providerId: string } | { address: string } | null;

/** A route of the cloud. */
export interface Route {
  /** The cloud's name of the route. */
  name: string;
  target: Target;
  destinationCidr: string;
  targetAddresses?: NodeAddress[];
  /** The target of the route no longer exists. */
  blackhole?: boolean;
  extra?: Fields;
}

/** A route that a node needs. */
export interface NewRoute {
  nameHint: string;
  node: string;
  providerId: string | null;
  addresses: NodeAddress[];
  destinationCidr: string;
  extra: Fields;
}

/** A volume without topology labels. */
export interface PersistentVolume {
  name: string;
  uid: string;
  labels: Fields;
  annotations: Fields;
  storageClass: string;
  /** A field of `spec`: `csi`, `flexVolume`, … */
  source: string;
  driver: string;
  /** The cloud's ID of the volume. */
  handle: string;
  attributes: Fields;
  extra: Fields;
}

/** Every provider exports `identity`. Its functions send no request. */
export interface Identity {
  describe(): Info;
  /** Every problem of a cloud-config, with the line of each. */
  checkConfig(text: string): Problem[];
  /** The origins of the cloud's API, which the host compares with the egress rules. */
  origins(text: string): string[];
}

/** Exported as `instances`: the machines behind nodes. */
export interface Instances {
  /**
   * One result for each node, in the order of the nodes. `notFound` deletes the node: only where
   * the cloud confirms that there is no such machine. A thrown error is about all nodes.
   */
  describe(nodes: NodeSet, detail: Detail): (Instance | ProviderError)[];
}

/** Exported as `loadBalancers`. */
export interface LoadBalancers {
  /** The name of the load balancer in the cloud. */
  name(cluster: string, service: Service): string;
  /** null where there is no load balancer. */
  get(cluster: string, service: Service): LoadBalancerStatus | null;
  ensure(cluster: string, service: Service, nodes: NodeSet): LoadBalancerStatus;
  /** Changes the nodes of an existing load balancer, and nothing else. */
  update(cluster: string, service: Service, nodes: NodeSet): void;
  /** Succeeds where there is nothing to delete. */
  ensureDeleted(cluster: string, service: Service): void;
}

/** Exported as `loadBalancerInventory`: load balancers without their Services. */
export interface LoadBalancerInventory {
  list(cluster: string): Owned[];
  /**
   * Deletes a load balancer that `list` returned, unless another Service uses it by now; the
   * Service is the one that was listed.
   */
  delete(cluster: string, name: string, service: ServiceRef | null): void;
}

/** Exported as `routes`: routes to the pod CIDRs of nodes. */
export interface Routes {
  list(cluster: string): Route[];
  /** One result for each route, in order: null for success. */
  create(cluster: string, routes: NewRoute[]): (ProviderError | null)[];
  delete(cluster: string, routes: Route[]): (ProviderError | null)[];
}

/** Exported as `persistentVolumeLabels`: the topology of volumes. */
export interface PersistentVolumeLabels {
  labels(cluster: string, volume: PersistentVolume): Fields;
}
