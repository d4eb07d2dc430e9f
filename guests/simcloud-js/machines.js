// @ts-check
import { notFound, parseProviderId, ProviderError } from "@skysail/provider";
import { list, load, zones } from "./api.js";

/** @typedef {import("./api.js").Machine} Machine */

export const scheme = "simcloud";
/** The maximum number of nodes in one request by ID and name: a URL has a limited length. */
const askedMax = 100;

/** @type {import("@skysail/provider").Instances} */
export const instances = {
  /** One list request for up to 500 machines of the cloud, or for up to 100 nodes. */
  describe(nodes, detail) {
    const cloud = load();
    const [names, ids] = [nodes.names(), nodes.providerIds()];
    const machines = machinesOf(cloud, names, ids);
    const regions = new Map(
      machines && detail === "metadata" ? zones(cloud).map(({ name, region }) => [name, region]) : [],
    );
    const byId = new Map(machines?.map((machine) => [machine.id, machine]));
    const byName = new Map(machines?.map((machine) => [machine.name, machine]));
    return names.map((name, index) => {
      const providerId = ids[index] ?? null;
      const id = providerId === null ? null : idOf(providerId);
      if (id instanceof ProviderError) return id;
      const machine = id === null ? byName.get(name) : byId.get(id);
      if (!machine) return notFound(`the cloud has no machine for node ${name} (${providerId ?? "by name"})`);
      return instance(machine, regions.get(machine.zone));
    });
  },
};

/**
 * The machine's ID in a provider ID, or the error that the ID is another provider's.
 * @param {string} providerId
 */
export const idOf = (providerId) => parseProviderId(scheme, providerId);

/**
 * null where no node can be of this cloud: without a filter the cloud would list all machines.
 * @param {import("@skysail/provider").API} cloud
 * @param {string[]} names
 * @param {(string | null)[]} ids
 * @returns {Machine[] | null}
 */
function machinesOf(cloud, names, ids) {
  let request = cloud.get("v1", "instances");
  let isAsked = false;
  for (const [index, name] of names.entries()) {
    const providerId = ids[index] ?? null;
    const id = providerId === null ? null : idOf(providerId);
    if (id instanceof ProviderError) continue;
    isAsked = true;
    if (names.length <= askedMax) request = id === null ? request.query("name", name) : request.query("id", id);
  }
  return isAsked ? list(request, "id", "name") : null;
}

/**
 * @param {Machine} machine
 * @param {string} [region]
 * @returns {import("@skysail/provider").Instance}
 */
function instance(machine, region = "") {
  const addresses = [
    { type: "Hostname", address: machine.name },
    { type: "InternalIP", address: machine.private_address },
  ];
  if (machine.public_address) addresses.push({ type: "ExternalIP", address: machine.public_address });
  return {
    providerId: `${scheme}://${machine.id}`,
    shutdown: machine.state === "stopped",
    instanceType: machine.type,
    zone: machine.zone,
    region,
    addresses,
  };
}
