// @ts-check
/** The API of the simulated cloud, as far as the provider uses it. */
import { API, cache, INI, loadConfig, pages, requireTexts } from "@skysail/provider";

/** The maximum of the API. */
const pageEntries = 500;
/** Zones rarely change. */
const zonesTtlMs = 10 * 60 * 1000;

/**
 * @typedef {Record<string, string>} Tags
 * @typedef {{
 *   id: string, name: string, zone: string, type: string, private_address: string,
 *   public_address: string | null, state: string
 * }} Machine
 * @typedef {{name: string, region: string}} Zone
 * @typedef {{id: string, name: string, address: string, state: string, tags: Tags}} ElasticIP
 * @typedef {{address: string, port: number}} Backend
 * @typedef {{
 *   real_servers: Backend[], allowed_sources: string[], session_affinity_seconds: number
 * }} Settings
 * @typedef {Settings & {
 *   id: string, name: string, elastic_ip: string, port: number, state: string, tags: Tags
 * }} VirtualServer
 * @typedef {{
 *   id: string, destination_cidr: string, instance: string, blackhole: boolean
 * }} CloudRoute
 */

/**
 * Reads the cloud-config: `[Global] endpoint = URL`; a zone, which the provider in Rust needs for
 * upstream's Zones, is accepted.
 * @param {string} text
 */
export function parse(text) {
  const ini = new INI(text);
  const endpoint = ini.required("Global", "endpoint");
  if (endpoint && !/^https?:\/\//.test(endpoint)) {
    ini.refuse("Global", "endpoint", `${JSON.stringify(endpoint)} is not a URL such as http://127.0.0.1:8088`);
  }
  ini.optional("Global", "zone");
  return {
    value: new API({ endpoint, credential: "api" }),
    problems: ini.problems(),
  };
}

/** The cloud of this call. */
export const load = () => loadConfig(parse);

/**
 * Every record that matches the request's filters; these members of each are texts.
 * @template T
 * @param {import("@skysail/provider").Request} request
 * @param {string[]} texts
 * @returns {T[]}
 */
export function list(request, ...texts) {
  return pages((cursor) => {
    const response = request.query("limit", pageEntries).queryUnlessEmpty("cursor", cursor).send();
    const { items, next } = /** @type {{items?: unknown, next?: string | null}} */ (response.json());
    // An absent list must not read as an empty one: nothing would exist.
    requireTexts(items, response.message("items"), ...texts);
    return { entries: /** @type {T[]} */ (/** @type {unknown} */ (items)), next };
  });
}

/**
 * @param {API} cloud
 * @returns {Zone[]}
 */
export const zones = (cloud) =>
  cache.getOr("zones", zonesTtlMs, () => list(cloud.get("v1", "zones"), "name", "region"));

export const clusterTag = "skysail-cluster";

/**
 * The records that the cluster owns: of all names, or of one.
 * @template T
 * @param {API} cloud
 * @param {string} kind
 * @param {string} cluster
 * @param {string} [name]
 * @returns {T[]}
 */
export const owned = (cloud, kind, cluster, name) =>
  list(cloud.get("v1", kind).query("tag", `${clusterTag}=${cluster}`).queryUnlessEmpty("name", name), "id");
