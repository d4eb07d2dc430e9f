// @ts-check
/**
 * The cloud provider example. This first version needs no cloud: load balancers get an address of a
 * pool, two Services may get the same one, no traffic flows, and every node has an
 * instance. Replace the functions one by one by requests to the cloud; the README of
 * @skysail/provider shows how.
 */
import { defaultLoadBalancerName, INI, isIPv4, loadConfig } from "@skysail/provider";

/** Begins the provider IDs of this cloud's machines: example://ID. */
const scheme = "example";

/**
 * Reads the cloud-config: `[LoadBalancer] pool = CIDR`, an IPv4 range.
 * @param {string} text
 */
function parse(text) {
  const ini = new INI(text);
  // The documentation range of RFC 5737.
  const pool = ini.optional("LoadBalancer", "pool") ?? "203.0.113.0/24";
  const [base = "", length = "", ...rest] = pool.split("/");
  const bits = Number(length);
  if (!isIPv4(base) || !/^\d+$/.test(length) || bits > 32 || rest.length > 0) {
    ini.refuse("LoadBalancer", "pool", `${JSON.stringify(pool)} is not an IPv4 range such as 203.0.113.0/24`);
  }
  return { value: { base, bits }, problems: ini.problems() };
}

/** @type {import("@skysail/provider").Identity} */
export const identity = {
  describe: () => ({ name: scheme, version: "0.1.0", description: "Addresses of a pool, without a cloud" }),
  checkConfig: (text) => parse(text).problems,
  // The scheme, host and port of the cloud's API: no API yet.
  origins: () => [],
};

/** @type {import("@skysail/provider").Instances} */
export const instances = {
  // Answers for each node, in the order of the nodes. notFound(…) in place of an
  // instance deletes the node.
  describe(nodes) {
    const addresses = nodes.addresses("InternalIP");
    return nodes.names().map((name, index) => ({
      providerId: `${scheme}://${name}`,
      addresses: (addresses[index] ?? []).map((address) => ({ type: "InternalIP", address })),
    }));
  },
};

/** @type {import("@skysail/provider").LoadBalancers} */
export const loadBalancers = {
  name: (_cluster, service) => defaultLoadBalancerName(service),
  // Returns null if the cloud has no load balancer for the Service.
  get: (_cluster, service) => ({ ingress: [{ ip: address(loadConfig(parse), service.uid) }] }),
  // The host repeats this after failures and restarts: look for what exists before creating.
  ensure: (cluster, service) => loadBalancers.get(cluster, service) ?? { ingress: [] },
  update() {},
  ensureDeleted() {},
};

/**
 * Selects an address of the pool by the Service's UID.
 * @param {{ base: string, bits: number }} pool
 * @param {string} uid
 */
function address({ base, bits }, uid) {
  const hash = [...uid].reduce((hash, letter) => (hash * 31 + letter.charCodeAt(0)) % 2 ** 32, 7);
  const number = base.split(".").reduce((number, octet) => number * 256 + Number(octet), 0);
  const size = 2 ** (32 - bits);
  const chosen = number - (number % size) + (hash % size);
  return [24, 16, 8, 0].map((shift) => Math.floor(chosen / 2 ** shift) % 256).join(".");
}
