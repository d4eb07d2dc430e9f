/**
 * Between the contract as `componentize-qjs` passes it and the types of this SDK. The entry that
 * `skysail-componentize-js` makes exports these objects.
 */
import type * as contract from "./contract.js";
import { internal, ProviderError } from "./errors.js";
import { host, milliseconds, shown, wellFormed } from "./host.js";
import type * as sdk from "./types.js";

/**
 * An exception of a bug ends the call with a trap: the host shows the text of the log line as its
 * reason. What was thrown goes no further, because the engine would read a thrown object of the
 * contract's shape as the error of the call.
 */
function panic(error: unknown): never {
  const text = `uncaught ${shown(error)}`;
  host().log.write("error", wellFormed(text), [["panic", "true"]]);
  throw new Error(text);
}

/** A function whose result in the contract has no error. */
const total =
  <A extends unknown[], R>(call: (...args: A) => R) =>
  (...args: A): R => {
    try {
      return call(...args);
    } catch (error) {
      panic(error);
    }
  };

/** A function whose result in the contract has an error: it throws the contract's. */
const fallible =
  <A extends unknown[], R>(call: (...args: A) => R) =>
  (...args: A): R => {
    let failure: ProviderError;
    try {
      return call(...args);
    } catch (error) {
      failure = known(error);
    }
    throw fromError(failure);
  };

/** The error of a provider; a result of a wrong type is `internal`. */
function known(error: unknown): ProviderError {
  if (error instanceof ProviderError) return error;
  if (error instanceof WrongType) return internal(error.message);
  panic(error);
}

type Functions<T> = Record<keyof T, true>;

const functions = {
  identity: { describe: true, checkConfig: true, origins: true } satisfies Functions<sdk.Identity>,
  instances: { describe: true } satisfies Functions<sdk.Instances>,
  loadBalancers: {
    name: true,
    get: true,
    ensure: true,
    update: true,
    ensureDeleted: true,
  } satisfies Functions<sdk.LoadBalancers>,
  loadBalancerInventory: { list: true, delete: true } satisfies Functions<sdk.LoadBalancerInventory>,
  routes: { list: true, create: true, delete: true } satisfies Functions<sdk.Routes>,
  persistentVolumeLabels: { labels: true } satisfies Functions<sdk.PersistentVolumeLabels>,
};

/** Throws while the component is being built, where a provider lacks a function of an interface. */
export function requireFunctions(name: keyof typeof functions, provider: unknown): void {
  for (const one of Object.keys(functions[name])) {
    if (typeof (provider as Record<string, unknown> | undefined)?.[one] !== "function") {
      throw new Error(`the export ${name} has no function ${one}`);
    }
  }
}

/**
 * What a provider returned is not of the type that this SDK declares. The path grows on the way
 * out, so that it costs nothing where all is well.
 */
class WrongType extends TypeError {
  private path: string;

  constructor(
    where: string,
    private readonly wanted: string,
    private readonly value: unknown,
  ) {
    super();
    this.path = where;
    this.tell();
  }

  /** Names what the value is in. */
  prefix(where: string): void {
    this.path = where + this.path;
    this.tell();
  }

  private tell(): void {
    const found =
      this.value instanceof Promise ? "a Promise: the functions of a provider are synchronous" : shown(this.value);
    this.message = `${this.path} is not ${this.wanted}: ${found}`;
  }
}

function text(value: unknown, where: string): string {
  if (typeof value !== "string") throw new WrongType(where, "a string", value);
  return wellFormed(value);
}

const optionalText = (value: unknown, where: string): string | null =>
  value === null || value === undefined ? null : text(value, where);

function integer(value: unknown, where: string, max: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0 || value > max) {
    throw new WrongType(where, `a whole number from 0 to ${max}`, value);
  }
  return value;
}

/** A value that JSON may have as a text: "false" is not false. */
function flag(value: unknown, where: string): boolean {
  if (value === undefined) return false;
  if (typeof value !== "boolean") throw new WrongType(where, "a boolean", value);
  return value;
}

/** Every element; `where` begins the names of what is in them. */
function each<T, U>(values: readonly T[], where: string, convert: (value: T) => U): U[] {
  if (!Array.isArray(values)) throw new WrongType(where, "an array", values);
  const converted: U[] = [];
  try {
    for (const value of values as readonly T[]) converted.push(convert(value));
  } catch (error) {
    if (error instanceof WrongType) error.prefix(`${where}[${converted.length}]`);
    throw error;
  }
  return converted;
}

/** As `each`, of a list that may be absent. */
const list = <T, U>(values: readonly T[] | undefined, where: string, convert: (value: T) => U): U[] =>
  values === undefined ? [] : each(values, where, convert);

const textElement = (value: string): string => text(value, "");

function object<T>(value: T, where = ""): NonNullable<T> {
  if (typeof value !== "object" || value === null || value instanceof Promise)
    throw new WrongType(where, "an object", value);
  return value;
}

function oneOf<T extends string>(names: Record<string, T>, value: unknown, where: string): T {
  const found = typeof value === "string" && Object.hasOwn(names, value) ? names[value] : undefined;
  if (found === undefined) throw new WrongType(where, `one of ${Object.keys(names).join(", ")}`, value);
  return found;
}

/** The contract's name to the SDK's, by the table in the other direction. */
const inverted = <T extends string, U extends string>(names: Record<T, U>): Record<U, T> =>
  Object.fromEntries(Object.entries(names).map(([key, value]) => [value, key])) as Record<U, T>;

const protocols: Record<sdk.Protocol, contract.types.Protocol> = { TCP: "tcp", UDP: "udp", SCTP: "sctp" };
const ipModes: Record<sdk.IPMode, contract.types.IpMode> = { VIP: "vip", Proxy: "proxy" };
const addressKinds: Record<string, Exclude<contract.types.AddressKind["tag"], "other">> = {
  Hostname: "hostname",
  InternalIP: "internal-ip",
  ExternalIP: "external-ip",
  InternalDNS: "internal-dns",
  ExternalDNS: "external-dns",
};
const toProtocol = inverted(protocols);
const toIPMode = inverted(ipModes);
const toAddressType = inverted(addressKinds);
const toFamily: Record<contract.types.IpFamily, sdk.IPFamily> = { ipv4: "IPv4", ipv6: "IPv6" };
const toTrafficPolicy: Record<contract.types.TrafficPolicy, sdk.TrafficPolicy> = { cluster: "Cluster", local: "Local" };
const toFamilyPolicy: Record<contract.types.IpFamilyPolicy, sdk.IPFamilyPolicy> = {
  "single-stack": "SingleStack",
  "prefer-dual-stack": "PreferDualStack",
  "require-dual-stack": "RequireDualStack",
};

/** Without a prototype: a label may be called `constructor`. */
function toFields(pairs: readonly contract.types.Pair[]): sdk.Fields {
  const fields: sdk.Fields = Object.create(null);
  for (const [key, value] of pairs) fields[key] = value;
  return fields;
}

function fromFields(fields: sdk.Fields | undefined, where: string): contract.types.Pair[] {
  if (fields === undefined) return [];
  if (fields instanceof Map) throw new WrongType(where, "an object with a member for each key", fields);
  const pairs: contract.types.Pair[] = [];
  for (const [key, value] of Object.entries(object(fields, where))) {
    if (value === undefined) continue;
    pairs.push([wellFormed(key), text(value, `${where}[${JSON.stringify(key)}]`)]);
  }
  return pairs.sort(([one], [other]) => (one < other ? -1 : 1));
}

/** More than an hour is an hour to the host. */
const waitMax = 3_600_000;

function fromError(error: ProviderError): contract.types.Error {
  const message = wellFormed(error.message);
  if (error.code !== "retry-after") return { tag: error.code, val: message };
  const afterMs = milliseconds(error.afterMs, waitMax);
  return { tag: "retry-after", val: { afterMs, message } };
}

type Result<T> = { tag: "ok"; val: T } | { tag: "err"; val: contract.types.Error };
type Unit = { tag: "ok" } | { tag: "err"; val: contract.types.Error };

const failed = (error: ProviderError) => ({ tag: "err" as const, val: fromError(error) });

/** The result of one element; a value of a wrong type is an error of this element alone. */
const resultOf =
  <T, U>(convert: (value: T) => U) =>
  (value: T | ProviderError): Result<U> => {
    if (value instanceof ProviderError) return failed(value);
    try {
      return { tag: "ok", val: convert(value) };
    } catch (error) {
      if (error instanceof WrongType) error.prefix("the result of a node");
      return failed(known(error));
    }
  };

/** Without `return` a function has the result undefined, which is no success. */
function unitOf(value: ProviderError | null): Unit {
  if (value === null) return { tag: "ok" };
  if (value instanceof ProviderError) return failed(value);
  return failed(known(new WrongType("the result of a route", "null or a ProviderError", value)));
}

const toKind = (type: sdk.AddressType): contract.types.AddressKind => {
  const tag = Object.hasOwn(addressKinds, type) ? addressKinds[type] : undefined;
  return tag === undefined ? { tag: "other", val: wellFormed(type) } : { tag };
};

const toAddress = ({ kind, address }: contract.types.NodeAddress): sdk.NodeAddress => ({
  type: kind.tag === "other" ? kind.val : toAddressType[kind.tag],
  address,
});

const fromAddress = (value: sdk.NodeAddress): contract.types.NodeAddress => {
  const { type, address } = object(value);
  return { kind: toKind(text(type, ".type")), address: text(address, ".address") };
};

/** The nodes of a call, read when they are asked for. */
class Nodes implements sdk.NodeSet {
  constructor(private readonly held: contract.types.NodeSet) {}
  get length(): number {
    return this.held.len();
  }
  digest(): number {
    return this.held.digest();
  }
  names(): string[] {
    return this.held.names();
  }
  providerIds(): (string | null)[] {
    return this.held.providerIds();
  }
  addresses(type: sdk.AddressType): string[][] {
    return this.held.addresses(toKind(type));
  }
  label(key: string): (string | null)[] {
    return this.held.label(wellFormed(key));
  }
  get(index: number): sdk.Node | null {
    const node = this.held.get(integer(index, "the index of a node", 0xffff_ffff));
    if (!node) return null;
    return {
      name: node.name,
      uid: node.uid,
      providerId: node.providerId,
      addresses: node.addresses.map(toAddress),
      labels: toFields(node.labels),
      annotations: toFields(node.annotations),
      podCidrs: node.podCidrs,
      ready: node.ready,
      extra: toFields(node.extra),
    };
  }
}

const toStatus = (status: contract.types.LoadBalancerStatus): sdk.LoadBalancerStatus => ({
  ingress: status.ingress.map(({ ip, hostname, ipMode, ports, extra }) => ({
    ip,
    hostname,
    ipMode: ipMode && toIPMode[ipMode],
    ports: ports.map(({ port, protocol, error }) => ({ port, protocol: toProtocol[protocol], error })),
    extra: toFields(extra),
  })),
});

const fromStatus = (value: sdk.LoadBalancerStatus, where: string): contract.types.LoadBalancerStatus => ({
  // Without a list the host would take all addresses from the Service.
  ingress: each(object(value, where).ingress, `${where}.ingress`, (ingress) => {
    const { ip, hostname, ipMode, ports, extra } = object(ingress);
    return {
      ip: optionalText(ip, ".ip"),
      hostname: optionalText(hostname, ".hostname"),
      ipMode: ipMode ? oneOf(ipModes, ipMode, ".ipMode") : null,
      ports: list(ports, ".ports", (status) => {
        const { port, protocol, error } = object(status);
        return {
          port: integer(port, ".port", 0xffff),
          protocol: oneOf(protocols, protocol, ".protocol"),
          error: optionalText(error, ".error"),
        };
      }),
      extra: fromFields(extra, ".extra"),
    };
  }),
});

const toService = (service: contract.types.Service): sdk.Service => ({
  namespace: service.namespace,
  name: service.name,
  uid: service.uid,
  labels: toFields(service.labels),
  annotations: toFields(service.annotations),
  ports: service.ports.map(({ name, protocol, appProtocol, port, nodePort, targetPort, extra }) => ({
    name,
    protocol: toProtocol[protocol],
    appProtocol,
    port,
    nodePort,
    targetPort,
    extra: toFields(extra),
  })),
  clientIPTimeoutSeconds: service.sessionAffinity.tag === "client-ip" ? service.sessionAffinity.val : 0,
  loadBalancerIP: service.loadBalancerIp,
  loadBalancerClass: service.loadBalancerClass,
  sourceRanges: service.sourceRanges,
  externalIPs: service.externalIps,
  externalTrafficPolicy: toTrafficPolicy[service.externalTrafficPolicy],
  internalTrafficPolicy: toTrafficPolicy[service.internalTrafficPolicy],
  healthCheckNodePort: service.healthCheckNodePort,
  ipFamilies: service.ipFamilies.map((family) => toFamily[family]),
  ipFamilyPolicy: service.ipFamilyPolicy && toFamilyPolicy[service.ipFamilyPolicy],
  allocateNodePorts: service.allocateNodePorts,
  status: toStatus(service.status),
  extra: toFields(service.extra),
});

export const identity = (provider: sdk.Identity) => ({
  describe: total((): contract.identity.Info => {
    const info = object(provider.describe(), "Info");
    const extra = { ...info.extra, ...(info.pageNodes === undefined ? {} : { "page-nodes": String(info.pageNodes) }) };
    return {
      name: text(info.name, "Info.name"),
      version: text(info.version, "Info.version"),
      description: text(info.description, "Info.description"),
      providerIdSchemes: list(info.providerIdSchemes ?? [info.name], "Info.providerIdSchemes", textElement),
      hasClusterId: !flag(info.withoutClusterId, "Info.withoutClusterId"),
      serialLoadBalancers: flag(info.serialLoadBalancers, "Info.serialLoadBalancers"),
      extra: fromFields(extra, "Info.extra"),
    };
  }),
  checkConfig: total((config: string): contract.identity.Problem[] =>
    each(provider.checkConfig(config), "the result of checkConfig", (problem) => {
      const { severity, line, key, message } = object(problem);
      return {
        severity: oneOf({ fatal: "fatal", warning: "warning" }, severity, ".severity"),
        line: integer(line, ".line", 0xffff_ffff),
        key: text(key, ".key"),
        message: text(message, ".message"),
      };
    }),
  ),
  origins: total((config: string): string[] => each(provider.origins(config), "the result of origins", textElement)),
});

const fromInstance = (value: sdk.Instance): contract.instances.Instance => {
  const instance = object(value);
  const extra = fromFields(instance.extra, ".extra");
  if (flag(instance.withoutProviderId, ".withoutProviderId")) extra.push(["without-provider-id", "true"]);
  return {
    providerId: text(instance.providerId ?? "", ".providerId"),
    shutdown: flag(instance.shutdown, ".shutdown"),
    instanceType: text(instance.instanceType ?? "", ".instanceType"),
    zone: text(instance.zone ?? "", ".zone"),
    region: text(instance.region ?? "", ".region"),
    addresses: list(instance.addresses, ".addresses", fromAddress),
    labels: fromFields(instance.labels, ".labels"),
    extra,
  };
};

export const instances = (provider: sdk.Instances) => ({
  describe: fallible(
    (nodes: contract.types.NodeSet, detail: contract.instances.Detail): Result<contract.instances.Instance>[] =>
      each(provider.describe(new Nodes(nodes), detail), "the result of describe", resultOf(fromInstance)),
  ),
});

export const loadBalancers = (provider: sdk.LoadBalancers) => ({
  name: total((cluster: string, service: contract.types.Service): string =>
    text(provider.name(cluster, toService(service)), "the result of name"),
  ),
  get: fallible((cluster: string, service: contract.types.Service): contract.types.LoadBalancerStatus | null => {
    const status = provider.get(cluster, toService(service));
    return status === null ? null : fromStatus(status, "the result of get");
  }),
  ensure: fallible(
    (
      cluster: string,
      service: contract.types.Service,
      nodes: contract.types.NodeSet,
    ): contract.types.LoadBalancerStatus =>
      fromStatus(provider.ensure(cluster, toService(service), new Nodes(nodes)), "the result of ensure"),
  ),
  update: fallible((cluster: string, service: contract.types.Service, nodes: contract.types.NodeSet): void =>
    noResult(provider.update(cluster, toService(service), new Nodes(nodes)), "the result of update"),
  ),
  ensureDeleted: fallible((cluster: string, service: contract.types.Service): void =>
    noResult(provider.ensureDeleted(cluster, toService(service)), "the result of ensureDeleted"),
  ),
});

/** A Promise has no result yet, so it must not count as success. */
function noResult(value: unknown, where: string): void {
  if (value !== undefined && value !== null) throw new WrongType(where, "undefined", value);
}

type Names = [namespace: string, name: string, uid: string];

export const loadBalancerInventory = (provider: sdk.LoadBalancerInventory) => ({
  list: fallible((cluster: string): contract.loadBalancerInventory.Owned[] =>
    each(provider.list(cluster), "the result of list", (value) => {
      const { name, service, extra } = object(value);
      const field = (key: keyof sdk.ServiceRef) => text(service?.[key], `.service.${key}`);
      return {
        name: text(name, ".name"),
        service: service ? ([field("namespace"), field("name"), field("uid")] satisfies Names) : null,
        extra: fromFields(extra, ".extra"),
      };
    }),
  ),
  delete: fallible((cluster: string, name: string, service: Names | null): void => {
    const named = service && { namespace: service[0], name: service[1], uid: service[2] };
    noResult(provider.delete(cluster, name, named), "the result of delete");
  }),
});

function toTarget(target: contract.routes.Target): sdk.Target {
  switch (target.tag) {
    case "node":
      return { node: target.val };
    case "provider-id":
      return { providerId: target.val };
    case "address":
      return { address: target.val };
    case "none":
      return null;
  }
}

function fromTarget(target: sdk.Target): contract.routes.Target {
  if (target === null) return { tag: "none" };
  const value = object(target, ".target");
  if ("node" in value) return { tag: "node", val: text(value.node, ".target.node") };
  if ("providerId" in value) return { tag: "provider-id", val: text(value.providerId, ".target.providerId") };
  if ("address" in value) return { tag: "address", val: text(value.address, ".target.address") };
  throw new WrongType(".target", "null or an object with node, providerId or address", value);
}

export const routes = (provider: sdk.Routes) => ({
  list: fallible((cluster: string): contract.routes.Route[] =>
    each(provider.list(cluster), "the result of list", (value) => {
      const route = object(value);
      return {
        name: text(route.name, ".name"),
        target: fromTarget(route.target),
        targetAddresses: list(route.targetAddresses, ".targetAddresses", fromAddress),
        destinationCidr: text(route.destinationCidr, ".destinationCidr"),
        blackhole: flag(route.blackhole, ".blackhole"),
        extra: fromFields(route.extra, ".extra"),
      };
    }),
  ),
  create: fallible((cluster: string, wanted: contract.routes.NewRoute[]): Unit[] => {
    const routes = wanted.map(({ nameHint, node, providerId, addresses, destinationCidr, extra }) => ({
      nameHint,
      node,
      providerId,
      addresses: addresses.map(toAddress),
      destinationCidr,
      extra: toFields(extra),
    }));
    return each(provider.create(cluster, routes), "the result of create", unitOf);
  }),
  delete: fallible((cluster: string, unwanted: contract.routes.Route[]): Unit[] => {
    const routes = unwanted.map(({ name, target, targetAddresses, destinationCidr, blackhole, extra }) => ({
      name,
      target: toTarget(target),
      targetAddresses: targetAddresses.map(toAddress),
      destinationCidr,
      blackhole,
      extra: toFields(extra),
    }));
    return each(provider.delete(cluster, routes), "the result of delete", unitOf);
  }),
});

export const persistentVolumeLabels = (provider: sdk.PersistentVolumeLabels) => ({
  labels: fallible(
    (cluster: string, volume: contract.persistentVolumeLabels.PersistentVolume): contract.types.Pair[] => {
      const { labels, annotations, attributes, extra, ...rest } = volume;
      const found = provider.labels(cluster, {
        ...rest,
        labels: toFields(labels),
        annotations: toFields(annotations),
        attributes: toFields(attributes),
        extra: toFields(extra),
      });
      return fromFields(object(found, "the result of labels"), "the result of labels");
    },
  ),
});
