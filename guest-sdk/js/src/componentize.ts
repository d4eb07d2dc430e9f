#!/usr/bin/env node
/** `skysail-componentize-js PROVIDER OUT`: makes a component of a provider. */
import { cp, mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { createRequire } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { componentize } from "componentize-qjs";
import { build, type BuildOptions, type Plugin } from "esbuild";

const usage = `Makes a component of a provider in JavaScript or TypeScript.

usage: skysail-componentize-js [--bundle FILE] PROVIDER OUT

  PROVIDER       the module that exports the interfaces of the provider: identity, and any of
                 instances, loadBalancers, loadBalancerInventory, routes, persistentVolumeLabels
  OUT            the component of componentize-qjs
  --bundle FILE  writes what the engine runs, the provider with its packages in one file, because
                 the lines in errors are those of this file

OUT drops node sets too late. Make the component for Skysail of it, and try it:

  skysail componentize OUT example.wasm
  skysail call example.wasm identity.describe`;

/** Exports of a provider, and the contract's interfaces. */
const interfaces = {
  identity: "identity",
  instances: "instances",
  loadBalancers: "load-balancers",
  loadBalancerInventory: "load-balancer-inventory",
  routes: "routes",
  persistentVolumeLabels: "persistent-volume-labels",
} as const;
type Export = keyof typeof interfaces;

const version = "0.1.0";
const here = dirname(fileURLToPath(import.meta.url));
const sdk = (module: string) => join(here, `${module}.js`);

/**
 * Lets esbuild drop the library of addresses, a fifth of a small component,
 * where no provider uses it.
 */
const addressesWithoutSideEffects: Plugin = {
  name: "addresses",
  setup(build) {
    const path = createRequire(import.meta.url).resolve("ipaddr.js");
    build.onResolve({ filter: /^ipaddr\.js$/ }, () => ({ path, sideEffects: false }));
  },
};

const options: BuildOptions = {
  bundle: true,
  write: false,
  format: "esm",
  platform: "neutral",
  mainFields: ["module", "main"],
  conditions: ["import"],
  target: "es2023",
  charset: "utf8",
  legalComments: "none",
  logLevel: "silent",
  // One copy of the SDK: the one whose entry and types the component has.
  alias: { "@skysail/provider": sdk("index"), "@skysail/provider/testing": sdk("testing") },
  external: ["skysail:*", "wasi:*"],
  plugins: [addressesWithoutSideEffects],
};

class Failure extends Error {}

async function bundled(more: BuildOptions): Promise<{ text: string; exports: string[] }> {
  try {
    const { outputFiles, metafile } = await build({ ...options, ...more, metafile: true });
    const [output] = Object.values(metafile?.outputs ?? {});
    return { text: outputFiles?.[0]?.text ?? "", exports: output?.exports ?? [] };
  } catch (error) {
    throw new Failure(error instanceof Error ? error.message : String(error));
  }
}

/** The interfaces that the module exports. */
async function exportsOf(provider: string): Promise<Export[]> {
  const { exports } = await bundled({ entryPoints: [provider] });
  const names = Object.keys(interfaces) as Export[];
  for (const name of exports) {
    const meant = names.find((known) => known.toLowerCase() === name.toLowerCase());
    if (meant && meant !== name) throw new Failure(`the module exports ${name}: the interface is called ${meant}`);
  }
  if (!exports.includes("identity")) {
    throw new Failure(`the module has no export called identity; it exports ${exports.join(", ") || "nothing"}`);
  }
  return names.filter((name) => exports.includes(name));
}

/**
 * What the engine runs: the host and the interfaces of the provider, in the shape of the contract.
 */
const entry = (provider: string, exported: Export[]) => `
import config from "skysail:provider/config@${version}";
import http from "skysail:provider/http@${version}";
import log from "skysail:provider/log@${version}";
import cache from "skysail:provider/cache@${version}";
import events from "skysail:provider/events@${version}";
import random from "wasi:random/random@0.2.0";
import { useHost } from ${JSON.stringify(sdk("host"))};
import ${JSON.stringify(sdk("globals"))};
import * as glue from ${JSON.stringify(sdk("glue"))};
import * as provider from ${JSON.stringify(provider)};
useHost({ config, http, log, cache, events, random: (bytes) => random.getRandomBytes(bytes) });
${exported.map((name) => `glue.requireFunctions("${name}", provider.${name});`).join("\n")}
${exported.map((name) => `export const ${name} = glue.${name}(provider.${name});`).join("\n")}
`;

/** The world of this component: the contract in the version of this SDK. */
async function world(exported: Export[], folder: string): Promise<string> {
  const wit = join(folder, "wit");
  await cp(join(here, "wit"), wit, { recursive: true });
  const exports = exported.filter((name) => name !== "identity").map((name) => `  export ${interfaces[name]};\n`);
  await writeFile(
    join(wit, "javascript.wit"),
    `package skysail:provider@${version};\nworld javascript {\n  include provider;\n  import wasi:random/random@0.2.0;\n${exports.join("")}}\n`,
  );
  await mkdir(join(wit, "deps/random"), { recursive: true });
  await writeFile(
    join(wit, "deps/random/random.wit"),
    "package wasi:random@0.2.0;\ninterface random {\n  get-random-bytes: func(len: u64) -> list<u8>;\n}\n",
  );
  return wit;
}

async function make(provider: string, out: string, bundle?: string): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "skysail-js-"));
  try {
    const exported = await exportsOf(provider);
    const contents = entry(provider, exported);
    const { text: jsSource } = await bundled({
      stdin: { contents, resolveDir: dirname(provider), sourcefile: "entry.js" },
    });
    if (bundle) await writeFile(bundle, jsSource);
    const witPath = await world(exported, folder);
    // The runtime without asynchronous calls, which the contract has not;
    // small enough for a ConfigMap.
    const { component } = await componentize({ witPath, jsSource, world: "javascript", sync: true, optSize: true });
    // By rename: a reader of the file never sees a part of it.
    await writeFile(`${out}.partial`, component);
    await rename(`${out}.partial`, out);
    console.log(`${out}: ${component.length} bytes, exports ${exported.map((name) => interfaces[name]).join(", ")}`);
    console.log(`next: skysail componentize ${out} ${basename(out).replace(/(\.qjs)?\.wasm$/, "")}.wasm`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Prints an error, and whose it is. */
function tell(provider: string, error: unknown): void {
  const text = error instanceof Failure ? error.message : error instanceof Error ? error.stack : error;
  console.error(`skysail-componentize-js: ${provider}: ${text}`);
}

try {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      help: { type: "boolean", short: "h" },
      version: { type: "boolean" },
      bundle: { type: "string" },
    },
  });
  const [provider, out] = positionals;
  if (values.help) {
    console.log(usage);
  } else if (values.version) {
    console.log((JSON.parse(await readFile(join(here, "../package.json"), "utf8")) as { version: string }).version);
  } else if (!provider || !out || positionals.length > 2) {
    console.error(usage);
    process.exitCode = 2;
  } else {
    await make(resolve(provider), resolve(out), values.bundle).catch((error: unknown) => {
      tell(provider, error);
      process.exitCode = 1;
    });
  }
} catch (error) {
  console.error(`${error instanceof Error ? error.message : error}\n\n${usage}`);
  process.exitCode = 2;
}
