// @ts-check
/**
 * A program that does in the sandbox what programs in JavaScript do elsewhere: the name of the
 * cluster in a call is what it does, and the error of the call is what it saw.
 * `tests/it/src/js_guests.rs` has a test for each.
 */
import {
  API,
  cache,
  event,
  fetch,
  invalid,
  log,
  ProviderError,
  retryAfter,
  sendAll,
  unsupported,
} from "@skysail/provider";

const loadedAt = Date.now();

/** @type {Record<string, () => unknown>} */
const actions = {
  /** What reaches outside of a program in other places. */
  outside: () =>
    ["process", "require", "std", "os", "Deno", "Bun", "WebSocket", "XMLHttpRequest", "Worker", "setTimeout", "fetch"]
      .filter((name) => name in globalThis)
      .join(),
  random: () => [Math.random(), crypto.randomUUID(), crypto.getRandomValues(new Uint32Array(4)).join()].join("|"),
  clock: () => Date.now() > loadedAt && new Date().getFullYear() >= 2026,
  output: () => {
    console.log("by console", { number: 7 }, "\ud800");
    log.warn("by log", { number: 7 });
    event("Probed", "by event");
    return "done";
  },
  exception: () => /** @type {any} */ (undefined).member,
  rejection: () => Promise.reject(new Error("late")),
  "not an error": () => {
    throw "text";
  },
  /** An answer of the cloud that has the shape of the contract's error. */
  "an error of the contract": () => {
    throw { tag: "not-found", val: "thrown" };
  },
  "an error with a payload": () => {
    throw Object.assign(new Error("thrown"), { payload: { tag: "not-found", val: "thrown" } });
  },
  "huge numbers": () => {
    cache.set("a", 1, Infinity);
    cache.set("\ud800", 1, -1);
    throw retryAfter(1e20, "huge");
  },
  "a wrong type": () => ({ ingress: [{ ip: 7 }] }),
  "deep JSON": () => JSON.parse("[".repeat(100_000)),
  loop: () => {
    for (;;);
  },
  recursion: () => actions.recursion?.() ?? 1,
  memory: () => {
    const all = [];
    for (;;) all.push(new Uint8Array(1 << 20));
  },
  requests: () => {
    const api = new API({ endpoint: "http://127.0.0.1:1", credential: "api" });
    const results = sendAll([api.get("a"), api.get("b")]);
    /** @type {unknown} */
    let alone;
    try {
      fetch("http://127.0.0.1:1/c");
    } catch (error) {
      alone = error;
    }
    return [...results, alone].map((error) => (error instanceof ProviderError ? error.code : "no error")).join();
  },
  text: () => {
    const texts = ["", "abc", "äöü", "漢字 🌍", "\u0000\u007f\u0080\u00ff", "x".repeat(10_000) + "ß"];
    for (const text of texts) {
      cache.set("text", text, 60_000);
      const found = cache.get("text");
      if (found !== text) return `${JSON.stringify(text)} came back as ${JSON.stringify(found)}`;
    }
    return "equal";
  },
};

/** @type {import("@skysail/provider").Identity} */
export const identity = {
  describe: () => ({
    name: "probe-js",
    version: "0.1.0",
    description: "A probe of the sandbox, in JavaScript",
  }),
  checkConfig: () => [],
  origins: () => [],
};

/** @type {import("@skysail/provider").LoadBalancers} */
export const loadBalancers = {
  name: () => "probe",
  get(what) {
    const action = actions[what];
    if (!action) throw unsupported(`the probe has no ${what}`);
    const seen = action();
    if (typeof seen === "object") return /** @type {any} */ (seen);
    throw invalid(String(seen));
  },
  ensure: () => ({ ingress: [] }),
  /** Reads every node in both ways. */
  update(_cluster, _service, nodes) {
    const ids = nodes.providerIds();
    const labels = nodes.label("name");
    const names = nodes.names();
    for (const [index, name] of names.entries()) {
      const node = nodes.get(index);
      if (node?.name !== name || node.providerId !== ids[index] || node.labels["name"] !== labels[index]) {
        throw invalid(`node ${index} is ${JSON.stringify(node)} instead of ${name}`);
      }
    }
    throw invalid(`${names.length} of ${nodes.length} nodes, ${nodes.get(nodes.length)}, ${nodes.label("absent")[0]}`);
  },
  ensureDeleted() {},
};
