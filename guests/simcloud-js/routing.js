// @ts-check
/**
 * Routes to the pods of each machine. The cloud names the target of a route by the machine's ID.
 */
import { absentOk, denied, internal, isNotFound, notFound, ProviderError, sendAll } from "@skysail/provider";
import { clusterTag, list, load, owned } from "./api.js";
import { idOf, scheme } from "./machines.js";

/**
 * @typedef {import("./api.js").CloudRoute} CloudRoute
 * @typedef {import("@skysail/provider").NewRoute} NewRoute
 */

/** @type {(cloud: import("@skysail/provider").API, cluster: string) => CloudRoute[]} */
const ownedRoutes = (cloud, cluster) => owned(cloud, "routes", cluster);

/** @type {import("@skysail/provider").Routes} */
export const routes = {
  /** One list: the host finds the node of a machine. */
  list: (cluster) =>
    ownedRoutes(load(), cluster).map(({ id, destination_cidr, instance, blackhole }) => ({
      name: id,
      target: { providerId: `${scheme}://${instance}` },
      destinationCidr: destination_cidr,
      blackhole,
    })),

  // One list, a second one where a node has no provider ID, and one request for each
  // missing route. A route of this cluster to another machine is deleted first: pod CIDRs
  // move when a node is created again.
  create(cluster, wanted) {
    const cloud = load();
    const present = ownedRoutes(cloud, cluster);
    const targets = machinesOf(cloud, wanted);
    /** @type {{index: number, cidr: string, instance: string, hint: string}[]} */
    const missing = [];
    /** @type {CloudRoute[]} */
    const stale = [];
    for (const [index, { destinationCidr: cidr, nameHint }] of wanted.entries()) {
      const instance = targets[index];
      if (typeof instance !== "string") continue;
      const there = present.filter((route) => route.destination_cidr === cidr);
      stale.push(...there.filter((route) => route.instance !== instance));
      if (!there.some((route) => route.instance === instance))
        missing.push({ index, cidr, instance, hint: nameHint || cidr });
    }
    sendAll(stale.map(({ id }) => cloud.delete("v1", "routes", id))).forEach(absentOk);
    const created = sendAll(
      missing.map(({ cidr, instance, hint }) =>
        cloud
          .post("v1", "routes")
          .header("idempotency-key", `${cluster}/${cidr}/${instance}`)
          .json({
            name: hint,
            destination_cidr: cidr,
            instance,
            tags: { [clusterTag]: cluster },
          }),
      ),
    );
    /** @type {(ProviderError | null)[]} */
    const results = targets.map((target) => (target instanceof ProviderError ? target : null));
    for (const [place, { index }] of missing.entries()) {
      const result = created[place] ?? internal("a route has no result");
      results[index] = result instanceof ProviderError ? result : null;
    }
    return results;
  },

  // One list, then one request for each route. A missing route is a success. A route of another
  // cluster is refused, because the name comes from the host and proves no ownership.
  delete(cluster, unwanted) {
    const cloud = load();
    const ours = new Set(ownedRoutes(cloud, cluster).map(({ id }) => id));
    const results = sendAll(
      unwanted.map(({ name }) =>
        ours.has(name) ? cloud.delete("v1", "routes", name) : cloud.get("v1", "routes", name),
      ),
    );
    return results.map((result, index) => {
      if (result instanceof ProviderError) return isNotFound(result) ? null : result;
      const name = unwanted[index]?.name ?? "";
      return ours.has(name)
        ? null
        : denied(`route ${JSON.stringify(name)} is not of cluster ${JSON.stringify(cluster)}`);
    });
  },
};

/**
 * The ID of the machine of each route: by the node's provider ID, else by the node's name.
 * @param {import("@skysail/provider").API} cloud
 * @param {NewRoute[]} wanted
 */
function machinesOf(cloud, wanted) {
  const isByName = wanted.some(({ providerId }) => providerId === null);
  /** @type {import("./api.js").Machine[]} */
  const machines = isByName ? list(cloud.get("v1", "instances"), "id", "name") : [];
  return wanted.map(({ node, providerId }) => {
    if (providerId !== null) return idOf(providerId);
    return (
      machines.find(({ name }) => name === node)?.id ?? notFound(`the cloud has no machine ${JSON.stringify(node)}`)
    );
  });
}
