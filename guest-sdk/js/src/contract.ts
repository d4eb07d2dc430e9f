// Generated from wit/v0.1.0 by `skysail-componentize js-types`. Absent values are null; a function whose
// result in the contract is `result<T, E>` returns T or throws E.

export namespace config {
  export interface Functions {
    /**
     * The cloud-config that `check-config` accepted; empty if the operator configured none. Reads
     * only, constant during a call; cannot fail.
     */
    text(): string;
  }
}

export namespace clock {
  export interface Functions {
    /** Milliseconds since 1970-01-01T00:00:00Z. Reads only; cannot fail. */
    nowMs(): number;
    /**
     * Nanoseconds since an arbitrary start; never goes backwards. Only differences within one call
     * are meaningful. Reads only; cannot fail.
     */
    monotonicNs(): number;
  }
}

export namespace cache {
  export interface Functions {
    /** The value; none if the key is absent or its TTL is over. Reads only; cannot fail. */
    get(key: string): Uint8Array | null;
    /**
     * Stores a value for `ttl-ms` milliseconds and replaces an older value of the key. False if the
     * value did not fit into the cache. Idempotent. Cannot fail.
     */
    set(key: string, value: Uint8Array, ttlMs: number): boolean;
    /**
     * Stores a value for `ttl-ms` milliseconds if the present value of the key is `expected`, where
     * none stands for an absent key or one whose TTL is over. False, and nothing changed, if the
     * present value is another one, or the new value does not fit into the cache. Atomic among the
     * calls of the release. Idempotent only where `expected` and `value` are equal. Cannot fail.
     */
    compareAndSet(key: string, expected: Uint8Array | null, value: Uint8Array, ttlMs: number): boolean;
    /** Deletes a key. Idempotent: an absent key is no error. Cannot fail. */
    delete(key: string): void;
  }
}

export namespace events {
  export type Kind = "normal" | "warning";

  export interface Functions {
    /**
     * Publishes an Event. Not idempotent: each call emits one. `reason` is in CamelCase, at most 128
     * bytes; the message is truncated at 1,024 bytes. The Events of one call are limited; further
     * Events are dropped and counted. Kubernetes merges repeated Events and counts them. A call that
     * is not about one object (`instances`, `routes`, `load-balancer-inventory`, …) emits the Event
     * on the Namespace `kube-system`, which stands for the cluster; the Event's source is the
     * provider. Events that a release emits before it serves (in `identity`) are dropped and
     * counted. Cannot fail.
     */
    emit(kind: Kind, reason: string, message: string): void;
  }
}

export namespace types {
  /** When to retry. */
  export interface Retry {
    /** Milliseconds from now. 0 lets the host choose; more than an hour is treated as an hour. */
    afterMs: number;
    message: string;
  }

  /**
   * Why a function failed, with a message for people. There is one case for each different
   * reaction of the host. Only `not-found` means that something does not exist.
   */
  export type Error =
    | { tag: "not-found"; val: string }
    | { tag: "implemented-elsewhere"; val: string }
    | { tag: "unsupported"; val: string }
    | { tag: "invalid"; val: string }
    | { tag: "denied"; val: string }
    | { tag: "exhausted"; val: string }
    | { tag: "retry-after"; val: Retry }
    | { tag: "unavailable"; val: string }
    | { tag: "internal"; val: string }
    | { tag: "other"; val: [string, string] };

  /** Key and value: a label, an annotation, a header or an entry of `extra`. */
  export type Pair = [string, string];

  /** Kubernetes' `NodeAddressType`. */
  export type AddressKind =
    | { tag: "hostname" }
    | { tag: "internal-ip" }
    | { tag: "external-ip" }
    | { tag: "internal-dns" }
    | { tag: "external-dns" }
    | { tag: "other"; val: string };

  export interface NodeAddress {
    kind: AddressKind;
    address: string;
  }

  /** One node of the cluster, as the controllers see it. */
  export interface Node {
    name: string;
    uid: string;
    /** As in `spec.providerID`, usually `<scheme>://<rest>`; none while the node is uninitialised. */
    providerId: string | null;
    /** In the order of `status.addresses`. */
    addresses: NodeAddress[];
    /** Sorted by key. */
    labels: Pair[];
    /** Sorted by key. */
    annotations: Pair[];
    podCidrs: string[];
    /** Whether the condition `Ready` is true. */
    ready: boolean;
    /**
     * Known key: `system-uuid`, the value of `status.nodeInfo.systemUUID`, a UUID in lower case;
     * absent if the object has none. For clouds that find a machine by the UUID of its firmware.
     */
    extra: Pair[];
  }

  /**
   * A set of nodes that the host holds. A guest reads only the columns (one field of every node)
   * that it needs, and only these count against its limits.
   */
  export interface NodeSet {
    /** Number of nodes. */
    len(): number;
    /**
     * Digest of the content. Within the lifetime of one release, equal digests mean equal sets: a
     * provider may skip work that it has already done for this digest.
     */
    digest(): number;
    /** Names of all nodes, ascending. */
    names(): string[];
    /** `spec.providerID` of each node; none while the node is uninitialised. */
    providerIds(): (string | null)[];
    /**
     * All addresses of one kind of each node, in the node's order; an empty list if the node has
     * none.
     */
    addresses(kind: AddressKind): string[][];
    /** Value of one label of each node; none if the node does not have the label. */
    label(key: string): (string | null)[];
    /** All fields of one node; none if `index` is past the end. */
    get(index: number): Node | null;
  }

  export type Protocol = "tcp" | "udp" | "sctp";

  export type IpFamily = "ipv4" | "ipv6";

  export type IpFamilyPolicy = "single-stack" | "prefer-dual-stack" | "require-dual-stack";

  export type TrafficPolicy = "cluster" | "local";

  export type SessionAffinity =
    | { tag: "none" }
    | { tag: "client-ip"; val: number };

  /** One entry of `spec.ports`. */
  export interface ServicePort {
    /** Empty if the port has no name. */
    name: string;
    protocol: Protocol;
    appProtocol: string | null;
    /** 1 to 65535. */
    port: number;
    /** 0 if none is allocated. */
    nodePort: number;
    /** A port number or name, as in the object. */
    targetPort: string;
    extra: Pair[];
  }

  /**
   * The status of one port. `error` has the form of Kubernetes' `PortStatus.error`: a CamelCase
   * reason, or `domain/Reason`.
   */
  export interface PortStatus {
    port: number;
    protocol: Protocol;
    error: string | null;
  }

  export type IpMode = "vip" | "proxy";

  /**
   * One entry of `status.loadBalancer.ingress`: an IP, a hostname or both. The host validates both
   * before it writes them.
   */
  export interface Ingress {
    ip: string | null;
    hostname: string | null;
    ipMode: IpMode | null;
    ports: PortStatus[];
    extra: Pair[];
  }

  /** `status.loadBalancer`. */
  export interface LoadBalancerStatus {
    ingress: Ingress[];
  }

  /** A Service of type LoadBalancer. */
  export interface Service {
    namespace: string;
    name: string;
    uid: string;
    /** Sorted by key. */
    labels: Pair[];
    /** Sorted by key. */
    annotations: Pair[];
    ports: ServicePort[];
    sessionAffinity: SessionAffinity;
    loadBalancerIp: string | null;
    loadBalancerClass: string | null;
    /**
     * CIDRs from `spec.loadBalancerSourceRanges` or the older annotation; empty allows every
     * source.
     */
    sourceRanges: string[];
    externalIps: string[];
    externalTrafficPolicy: TrafficPolicy;
    internalTrafficPolicy: TrafficPolicy;
    /** 0 if there is none. */
    healthCheckNodePort: number;
    ipFamilies: IpFamily[];
    ipFamilyPolicy: IpFamilyPolicy | null;
    allocateNodePorts: boolean;
    /** The current `status.loadBalancer` of the object. */
    status: LoadBalancerStatus;
    extra: Pair[];
  }
}

export namespace log {
  export type Level = "trace" | "debug" | "info" | "warn" | "error";

  export interface Functions {
    /**
     * Whether the host keeps lines of this level; a guest can skip building a costly message for a
     * level that is off. No effect, cannot fail.
     */
    enabled(level: Level): boolean;
    /**
     * Writes one line. Not idempotent: each call writes a line. The lines and bytes of one provider
     * call are limited; further lines are dropped and counted. Never log a secret. If the call ends
     * with a trap, the host repeats the message of a line with a field `panic` in the error of the
     * call, as the reason of the trap. Cannot fail.
     */
    write(level: Level, message: string, fields: types.Pair[]): void;
  }
}

export namespace http {
  export interface Request {
    /** `GET`, `POST`, …; upper case. */
    method: string;
    /** An absolute `http` or `https` URL without user information. A fragment is not sent. */
    url: string;
    /**
     * The host sets some headers itself; a request with one of these is `malformed`: message
     * framing (`host`, `content-length`, `connection`, `te`, `expect`, …), all `proxy-…`,
     * `accept-encoding`, `cookie`, headers that servers treat as another method or path
     * (`x-http-method-override`, `x-original-url`, …), every header that the credential sets and,
     * with a credential, `range` and `if-range`. A name with characters other than letters, digits
     * and dashes is `malformed`, too: servers treat `x_auth_token` as `x-auth-token`.
     */
    headers: types.Pair[];
    body: Uint8Array | null;
    /**
     * Name of a credential that the operator configured for this provider. The host adds the
     * credential to the request; the guest never sees it.
     */
    credential: string | null;
    /**
     * Timeout of the whole exchange in milliseconds. 0 sets none; the provider's limit
     * `httpTimeMs` and the call's deadline always apply.
     */
    timeoutMs: number;
    extra: types.Pair[];
  }

  export interface Response {
    status: number;
    /**
     * In the order received, names in lower case, without `set-cookie` and hop-by-hop headers such
     * as `connection`. Credential values are replaced by `[redacted]`.
     */
    headers: types.Pair[];
    /** Decompressed. Credential values are replaced by `[redacted]`. */
    body: Uint8Array;
    extra: types.Pair[];
  }

  /**
   * Why there is no response. An HTTP error status such as 404 or 500 is a response and no
   * failure.
   */
  export type Failure =
    | { tag: "forbidden"; val: string }
    | { tag: "limited"; val: string }
    | { tag: "malformed"; val: string }
    | { tag: "unreachable"; val: string }
    | { tag: "tls"; val: string }
    | { tag: "interrupted"; val: string }
    | { tag: "timeout" }
    | { tag: "too-large"; val: number }
    | { tag: "credential-refused"; val: string }
    | { tag: "credential-unavailable"; val: string }
    | { tag: "other"; val: types.Pair };

  export interface Functions {
    /** Sends one request and waits for the complete response. */
    send(request: Request): Response;
    /**
     * Sends all requests, in parallel as far as the limits allow. The results have the order of the
     * requests.
     */
    sendAll(requests: Request[]): ({ tag: "ok"; val: Response } | { tag: "err"; val: Failure })[];
  }
}

export namespace identity {
  export interface Info {
    /** As upstream's `ProviderName()`: at most 63 lower-case letters, digits and dashes. */
    name: string;
    /** Version of the component, shown to people; semantic versioning is recommended. */
    version: string;
    /** One line, shown to people. */
    description: string;
    /**
     * The schemes of this provider's IDs in `spec.providerID`: `openstack` for `openstack:///…`.
     * At least one if `instances` is exported, unless the operator claims the IDs by their prefix
     * (`spec.providerIdPrefixes`), as for IDs without a scheme.
     */
    providerIdSchemes: string[];
    /**
     * As upstream's `HasClusterID()`: whether this provider tags cloud resources with the
     * cluster's name.
     */
    hasClusterId: boolean;
    /**
     * Whether the host has to make the calls of `load-balancers.ensure`, `update` and
     * `ensure-deleted`, and of `load-balancer-inventory.delete`, one after the other: at most one
     * of them runs at a time, across all Services, and across a canary, a swap and the end of the
     * calls on the replaced release. For a provider that changes a resource which several Services
     * share. The calls wait in their order, and the wait is not part of a call's deadline: a slow
     * Service delays the other Services of this provider.
     */
    serialLoadBalancers: boolean;
    /**
     * Known key: `page-nodes`, a number from 1 to 500: the host asks `instances.describe` for at
     * most so many nodes at once. The default is 500.
     */
    extra: types.Pair[];
  }

  export type Severity = "warning" | "fatal";

  /** One finding about a cloud-config. */
  export interface Problem {
    severity: Severity;
    /** Line of the cloud-config, from 1; 0 if unknown. */
    line: number;
    /** Key or section; empty if unknown. */
    key: string;
    message: string;
  }

  export interface Functions {
    /** Describes the provider. Called once for each release, before it may serve. */
    describe(): Info;
    /** Validates a cloud-config. Called once for each release and each new cloud-config. */
    checkConfig(text: string): Problem[];
    /**
     * The origins that the component requires under this cloud-config, such as
     * `https://api.example.com` or `https://*.example.com:8443`; at most 64. Called for each text
     * that `check-config` accepted, before the release or the new cloud-config comes into force.
     */
    origins(text: string): string[];
  }
}

export namespace instances {
  export type Detail = "state" | "metadata";

  export interface Instance {
    /**
     * `<scheme>://<rest>`, with one of the schemes of `identity.info`, or a text that begins with
     * a prefix that the operator claims for this provider (`spec.providerIdPrefixes`), such as
     * `openstack://region/` or `cn-hangzhou.`; the longest claimed prefix wins over the scheme.
     * Constant for the life of the machine. Empty only with the key `without-provider-id` in
     * `extra`.
     */
    providerId: string;
    /** True if the machine still exists and is powered off or shutting down. */
    shutdown: boolean;
    /**
     * Value for the label `node.kubernetes.io/instance-type`; empty if the cloud has none. Must be
     * a valid label value.
     */
    instanceType: string;
    /**
     * Value for the label `topology.kubernetes.io/zone`; empty if the cloud has none. Must be a
     * valid label value.
     */
    zone: string;
    /**
     * Value for the label `topology.kubernetes.io/region`; empty if the cloud has none. Must be a
     * valid label value.
     */
    region: string;
    /** In the order for `status.addresses` of the node. */
    addresses: types.NodeAddress[];
    /** Additional labels for the node. The host refuses keys in Kubernetes' own namespaces. */
    labels: types.Pair[];
    /**
     * Known key: `without-provider-id` with the value `true`. The cloud has no machine IDs; the
     * node is initialised without a provider ID. For clouds whose older upstream `Instances`
     * returned `NotImplemented`.
     */
    extra: types.Pair[];
  }

  export interface Functions {
    /** Looks up the machine of each node: by provider ID if the node has one, otherwise by name. */
    describe(nodes: types.NodeSet, detail: Detail): ({ tag: "ok"; val: Instance } | { tag: "err"; val: types.Error })[];
  }
}

export namespace loadBalancers {
  export interface Functions {
    /** The load balancer's name in the cloud. */
    name(cluster: string, service: types.Service): string;
    /**
     * The current status of the Service's load balancer in the cloud; none if there is no load
     * balancer, which is not an error.
     */
    get(cluster: string, service: types.Service): types.LoadBalancerStatus | null;
    /**
     * Creates or updates the load balancer until it matches the Service and has these nodes as
     * backends.
     */
    ensure(cluster: string, service: types.Service, nodes: types.NodeSet): types.LoadBalancerStatus;
    /** Makes these nodes the backends; nothing else of the Service changed since `ensure` succeeded. */
    update(cluster: string, service: types.Service, nodes: types.NodeSet): void;
    /**
     * Deletes everything that `ensure` created for this Service; of a load balancer that several
     * Services share, this Service's share.
     */
    ensureDeleted(cluster: string, service: types.Service): void;
  }
}

export namespace loadBalancerInventory {
  /**
   * A load balancer, or one Service's share of it: a load balancer that several Services share has
   * one entry for each of them.
   */
  export interface Owned {
    /** As `load-balancers.name`; the same for all shares of a load balancer. */
    name: string;
    /**
     * Namespace, name and UID of the Service, if the cloud stores them. Without them, the host
     * takes the load balancer for that of every Service for which `load-balancers.name` is `name`.
     */
    service: [string, string, string] | null;
    extra: types.Pair[];
  }

  export interface Functions {
    /** Every load balancer of this cluster and of no other cluster; an empty list if there is none. */
    list(cluster: string): Owned[];
    /**
     * Deletes one entry that `list` returned: the share of this Service, and the load balancer if
     * this was the last share; without a Service, the load balancer of this name if no Service
     * shares it. A share of another Service is never touched.
     */
    delete(cluster: string, name: string, service: [string, string, string] | null): void;
  }
}

export namespace persistentVolumeLabels {
  /** The fields of a `PersistentVolume` that its labels can depend on. */
  export interface PersistentVolume {
    name: string;
    /** Empty while the object is being created. */
    uid: string;
    /** Sorted by key. */
    labels: types.Pair[];
    /** Sorted by key. */
    annotations: types.Pair[];
    /** Empty if the volume has none. */
    storageClass: string;
    /** The volume source, a field of `spec`: `csi`, `flexVolume`, `awsElasticBlockStore`, … */
    source: string;
    /** The driver of `csi` and `flexVolume`; empty for every other source. */
    driver: string;
    /**
     * The cloud's ID of the volume: `csi.volumeHandle`, `awsElasticBlockStore.volumeID`, …; empty
     * if the source has no such field, as `flexVolume`.
     */
    handle: string;
    /**
     * Every other string, number and boolean of the source, by its path: `fsType`, `options.id`.
     * Sorted by key.
     */
    attributes: types.Pair[];
    extra: types.Pair[];
  }

  export interface Functions {
    /**
     * The topology labels of the volume: `topology.kubernetes.io/zone`,
     * `topology.kubernetes.io/region`; several zones are joined by `__`. At most 256, each a valid
     * label, no key twice. An empty list if the volume needs none.
     */
    labels(cluster: string, volume: PersistentVolume): types.Pair[];
  }
}

export namespace routes {
  /** What a route leads to, in the cloud's own terms. The host finds the node. */
  export type Target =
    | { tag: "node"; val: string }
    | { tag: "provider-id"; val: string }
    | { tag: "address"; val: string }
    | { tag: "none" };

  /** A route in the cloud. */
  export interface Route {
    /** The cloud's name of the route. */
    name: string;
    target: Target;
    targetAddresses: types.NodeAddress[];
    /** For example `10.244.3.0/24`. */
    destinationCidr: string;
    /** The target of the route no longer exists. */
    blackhole: boolean;
    /**
     * Known key: `enable-node-addresses` with the value `true`. The host then compares all
     * `target-addresses`, in any order, with `status.addresses` of the node; if they differ, the
     * host deletes the route and creates it with the node's addresses. Without the key the host
     * does not compare addresses. Other keys are the provider's own: at most 32 pairs, each text
     * of at most 1,024 bytes.
     */
    extra: types.Pair[];
  }

  /** A route that a node needs. */
  export interface NewRoute {
    /** Upstream's `nameHint`, the node's UID: helps to build a unique name. */
    nameHint: string;
    /** Name of the node. */
    node: string;
    /** `spec.providerID` of the node; none while the node is uninitialised. */
    providerId: string | null;
    /** `status.addresses` of the node. */
    addresses: types.NodeAddress[];
    /** One of the node's pod CIDRs. */
    destinationCidr: string;
    extra: types.Pair[];
  }

  export interface Functions {
    /**
     * Every route that this cluster owns in the cloud, blackholes included, and no route of another
     * cluster; an empty list if there is none.
     */
    list(cluster: string): Route[];
    /**
     * Creates routes. A route of this cluster to the same destination with another target is in the
     * way: the provider replaces it, or returns an error that says so.
     */
    create(cluster: string, routes: NewRoute[]): ({ tag: "ok" } | { tag: "err"; val: types.Error })[];
    /**
     * Deletes routes that `list` returned. The host passes each route as `list` returned it, `extra`
     * included.
     */
    delete(cluster: string, routes: Route[]): ({ tag: "ok" } | { tag: "err"; val: types.Error })[];
  }
}
