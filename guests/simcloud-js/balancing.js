// @ts-check
/**
 * Load balancers: an elastic IP, and a virtual server for each port, all with the
 * name and the cluster's tag.
 */
import {
  absentOk,
  allowedSources,
  defaultLoadBalancerName,
  denied,
  families,
  internalIPs,
  invalid,
  notFound,
  retryAfter,
  sendAll,
  sendEvery,
  serviceKey,
  unsupported,
} from "@skysail/provider";
import { clusterTag, list, load, owned } from "./api.js";

/**
 * @typedef {import("@skysail/provider").API} API
 * @typedef {import("@skysail/provider").Service} Service
 * @typedef {import("./api.js").Backend} Backend
 * @typedef {import("./api.js").ElasticIP} ElasticIP
 * @typedef {import("./api.js").Settings} Settings
 * @typedef {import("./api.js").VirtualServer} VirtualServer
 */

const serviceTag = "skysail-service";
const uidTag = "skysail-service-uid";
/** The wait before the next look at a resource that is still being created. */
const pendingMs = 1000;

/** @type {import("@skysail/provider").LoadBalancers} */
export const loadBalancers = {
  name: (_cluster, service) => defaultLoadBalancerName(service),

  get(cluster, service) {
    /** @type {ElasticIP[]} */
    const [ip] = owned(load(), "elastic-ips", cluster, defaultLoadBalancerName(service));
    return ip ? { ingress: [{ ip: ip.address }] } : null;
  },

  // Lists what there is first, so that it finds repeated and partial work. The idempotency key
  // finds the result of a request whose response was lost.
  ensure(cluster, service, nodes) {
    const cloud = load();
    check(service);
    const sources = allowedIPv4(service);
    const name = defaultLoadBalancerName(service);
    const { ips, servers } = present(cloud, cluster, name);
    const asked = service.loadBalancerIP;
    const kept = ips.find((ip) => !asked || ip.address === asked);
    const isWanted = (/** @type {VirtualServer} */ server) =>
      server.elastic_ip === kept?.id && service.ports.some(({ port }) => port === server.port);
    remove(
      cloud,
      servers.filter((server) => !isWanted(server)),
      ips.filter((ip) => ip !== kept),
    );
    const tags = {
      [clusterTag]: cluster,
      [serviceTag]: serviceKey(service),
      [uidTag]: service.uid,
    };
    const ip =
      kept ??
      allocate(cloud, `${cluster}/${name}/${asked ?? ""}`, {
        name,
        address: asked ?? undefined,
        tags,
      });
    let isPending = ip.state === "pending";
    const addresses = sorted(internalIPs(nodes, "IPv4"));
    const requests = [];
    for (const { port, nodePort } of service.ports) {
      const there = servers.find((server) => isWanted(server) && server.port === port);
      const settings = {
        real_servers: backends(addresses, nodePort),
        allowed_sources: sources,
        session_affinity_seconds: service.clientIPTimeoutSeconds,
      };
      if (!there) {
        const server = {
          name,
          elastic_ip: ip.id,
          protocol: "tcp",
          port,
          tags,
          ...settings,
        };
        const request = cloud.post("v1", "virtual-servers").json(server);
        requests.push(request.header("idempotency-key", `${cluster}/${name}/${ip.id}/${port}`));
        continue;
      }
      if (!same(there, settings)) requests.push(cloud.patch("v1", "virtual-servers", there.id).json(settings));
      isPending ||= there.state === "pending";
    }
    for (const response of sendEvery(requests)) {
      const server = /** @type {VirtualServer} */ (response.json());
      isPending ||= server.state === "pending";
    }
    if (isPending) throw retryAfter(pendingMs, `${ip.address} is being made`);
    return { ingress: [{ ip: ip.address }] };
  },

  update(cluster, service, nodes) {
    const cloud = load();
    check(service);
    /** @type {VirtualServer[]} */
    const servers = owned(cloud, "virtual-servers", cluster, defaultLoadBalancerName(service));
    const addresses = sorted(internalIPs(nodes, "IPv4"));
    const requests = [];
    for (const { port, nodePort } of service.ports) {
      const there = servers.find((server) => server.port === port);
      if (!there) throw notFound(`there is no virtual server for port ${port}`);
      const wanted = backends(addresses, nodePort);
      if (!sameBackends(there.real_servers, wanted)) {
        requests.push(cloud.put("v1", "virtual-servers", there.id, "real-servers").json(wanted));
      }
    }
    sendEvery(requests);
  },

  ensureDeleted(cluster, service) {
    removeAll(load(), cluster, defaultLoadBalancerName(service));
  },
};

/** @type {import("@skysail/provider").LoadBalancerInventory} */
export const loadBalancerInventory = {
  list(cluster) {
    const { ips, servers } = present(load(), cluster);
    const named = new Map([...ips, ...servers].map(({ name, tags }) => [name, tags]));
    return [...named]
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, tags]) => {
        const [namespace, service] = (tags[serviceTag] ?? "").split("/", 2);
        const uid = tags[uidTag];
        return {
          name,
          service: namespace && service && uid ? { namespace, name: service, uid } : null,
        };
      });
  },

  // A load balancer has one Service: one of another Service with this name stays.
  delete(cluster, name, service) {
    const cloud = load();
    /** @type {ElasticIP[]} */
    const all = list(cloud.get("v1", "elastic-ips").query("name", name), "id");
    if (service && all.some(({ tags }) => (tags[uidTag] ?? service.uid) !== service.uid)) return;
    if (all.some(({ tags }) => tags[clusterTag] !== cluster)) {
      throw denied(`load balancer ${JSON.stringify(name)} is not of cluster ${JSON.stringify(cluster)}`);
    }
    removeAll(cloud, cluster, name);
  },
};

/**
 * What exists of one name; of all names without one.
 * @param {API} cloud
 * @param {string} cluster
 * @param {string} [name]
 */
function present(cloud, cluster, name) {
  /** @type {ElasticIP[]} */
  const ips = owned(cloud, "elastic-ips", cluster, name);
  /** @type {VirtualServer[]} */
  const servers = owned(cloud, "virtual-servers", cluster, name);
  return { ips, servers };
}

/**
 * @param {API} cloud
 * @param {string} key
 * @param {object} wanted
 * @returns {ElasticIP}
 */
function allocate(cloud, key, wanted) {
  const response = cloud.post("v1", "elastic-ips").json(wanted).header("idempotency-key", key).send();
  return /** @type {ElasticIP} */ (response.json());
}

/** @type {(cloud: API, cluster: string, name: string) => void} */
function removeAll(cloud, cluster, name) {
  const { ips, servers } = present(cloud, cluster, name);
  remove(cloud, servers, ips);
}

/**
 * Virtual servers first: an address in use cannot be released.
 * @param {API} cloud
 * @param {VirtualServer[]} servers
 * @param {ElasticIP[]} ips
 */
function remove(cloud, servers, ips) {
  sendAll(servers.map(({ id }) => cloud.delete("v1", "virtual-servers", id))).forEach(absentOk);
  sendAll(ips.map(({ id }) => cloud.delete("v1", "elastic-ips", id))).forEach(absentOk);
}

/**
 * Refuses what the cloud does not support before anything is created.
 * @param {Service} service
 */
function check(service) {
  if (!families(service).includes("IPv4")) throw unsupported("the simulated cloud has IPv4 only");
  for (const { port, protocol, nodePort } of service.ports) {
    if (protocol !== "TCP") throw unsupported(`port ${port}: the simulated cloud carries TCP only`);
    if (nodePort === 0) {
      throw invalid(`port ${port} has no node port: the load balancer reaches pods through node ports`);
    }
  }
}

/**
 * The IPv4 ranges; no range at all means every client.
 * @param {Service} service
 */
function allowedIPv4(service) {
  const ranges = allowedSources(service).filter(({ family }) => family === "IPv4");
  if (ranges.some(({ bits }) => bits === 0)) return [];
  if (ranges.length === 0) throw unsupported("no source range is IPv4: the simulated cloud has no other clients");
  return ranges.map(({ address, bits }) => `${address}/${bits}`);
}

/**
 * Each address once, in the order of the cloud.
 * @param {string[]} addresses
 */
function sorted(addresses) {
  const number = (/** @type {string} */ address) =>
    address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
  const numbers = new Map(addresses.map((address) => [address, number(address)]));
  return [...numbers].sort(([, one], [, other]) => one - other).map(([address]) => address);
}

/** @type {(addresses: string[], port: number) => Backend[]} */
const backends = (addresses, port) => addresses.map((address) => ({ address, port }));

/** @type {(one: Backend[], other: Backend[]) => boolean} */
const sameBackends = (one, other) =>
  one.length === other.length &&
  one.every(({ address, port }, index) => address === other[index]?.address && port === other[index]?.port);

/** @type {(one: Settings, other: Settings) => boolean} */
const same = (one, other) =>
  sameBackends(one.real_servers, other.real_servers) &&
  one.session_affinity_seconds === other.session_affinity_seconds &&
  one.allowed_sources.join() === other.allowed_sources.join();
