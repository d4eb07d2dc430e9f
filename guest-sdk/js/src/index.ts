/**
 * The SDK for Skysail's cloud providers in JavaScript and TypeScript. A provider exports the
 * interfaces that it implements as objects: `identity`, which every provider has, `instances`,
 * `loadBalancers`, `loadBalancerInventory`, `routes` and `persistentVolumeLabels`.
 */
export * from "./config.js";
export * from "./errors.js";
export { cache, config, event, log, warningEvent } from "./host.js";
export * from "./http.js";
export * from "./service.js";
export * from "./types.js";
