// @ts-check
/**
 * The provider for the simulated cloud of `skysail dev`, in JavaScript: the interfaces of
 * guests/simcloud by the same requests, as an example for authors.
 */
import { hasFatal } from "@skysail/provider";
import { parse } from "./api.js";
import { scheme } from "./machines.js";

export { loadBalancerInventory, loadBalancers } from "./balancing.js";
export { instances } from "./machines.js";
export { routes } from "./routing.js";
export { persistentVolumeLabels } from "./volumes.js";

/** @type {import("@skysail/provider").Identity} */
export const identity = {
  // An interpreter needs ten times the fuel of a compiled provider for a list of machines.
  describe: () => ({
    name: scheme,
    version: "0.1.0",
    description: "Skysail's simulated cloud, in JavaScript",
    pageNodes: 250,
  }),
  checkConfig: (text) => parse(text).problems,
  origins(text) {
    const { value, problems } = parse(text);
    return hasFatal(problems) ? [] : [value.origin];
  },
};
