import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

const program = fileURLToPath(new URL("../dist/componentize.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "skysail-js-test-"));
after(() => rmSync(folder, { recursive: true }));
const out = join(folder, "out.wasm");
const run = (...args) => spawnSync(process.execPath, [program, ...args], { encoding: "utf8" });
const made = (name, source) => {
  const file = join(folder, name);
  writeFileSync(file, source);
  return run(file, out);
};

const identity = `export const identity = {
  describe: () => ({ name: "example", version: "1.0.0", description: "An example" }),
  checkConfig: () => [],
  origins: () => [],
};`;

test("a provider in TypeScript becomes a component with the interfaces that it exports", () => {
  const { stdout, stderr, status } = made(
    "provider.ts",
    `import { notFound, type Instances } from "@skysail/provider";
    export const instances: Instances = { describe: (nodes) => nodes.names().map((name) => notFound(name)) };
    ${identity}`,
  );
  assert.equal(status, 0, stderr);
  assert.match(stdout, /\d+ bytes, exports identity, instances\nnext: skysail componentize .*out.wasm out.wasm\n$/);
  // The preamble of a component.
  assert.deepEqual([...readFileSync(out).subarray(0, 8)], [0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0]);
});

const refusals = {
  "has no export called identity; it exports other": "export const other = 1;",
  "has no export called identity; it exports nothing": "",
  "the module exports loadbalancers: the interface is called loadBalancers": `${identity}\nexport const loadbalancers = {};`,
  'Expected ";" but found "is"': "this is not JavaScript",
  'Could not resolve "absent"': `import "absent";\n${identity}`,
  "wrong is not defined": `${identity}\nwrong();`,
  "the export instances has no function describe": `${identity}\nexport const instances = { describes: () => [] };`,
  "the top level of a module runs once": `import { config } from "@skysail/provider";\nconfig();\n${identity}`,
};
for (const [reason, source] of Object.entries(refusals)) {
  test(`a module is refused: ${reason}`, () => {
    const { stderr, status } = made("refused.js", source);
    assert.equal(status, 1);
    assert.ok(stderr.includes("refused.js") && stderr.includes(reason), stderr);
  });
}

for (const call of ["Math.random()", "crypto.randomUUID()", 'console.log("x")']) {
  test(`${call} at the top level is refused, because it would run once, at build time`, () => {
    const { stderr, status } = made("early.js", `${call};\n${identity}`);
    assert.equal(status, 1);
    assert.ok(stderr.includes("early.js") && stderr.includes("the top level of a module runs once"), stderr);
  });
}

test("the bundle that the engine runs can be kept, for the lines in errors", () => {
  writeFileSync(join(folder, "kept.js"), identity);
  const { status, stderr } = run("--bundle", join(folder, "bundle.js"), join(folder, "kept.js"), out);
  assert.equal(status, 0, stderr);
  assert.match(readFileSync(join(folder, "bundle.js"), "utf8"), /An example/);
});

test("a refused module leaves no file, and the usage is printed", () => {
  const absent = join(folder, "absent.wasm");
  assert.equal(run(join(folder, "no-such-file.js"), absent).status, 1);
  assert.ok(!existsSync(absent));
  assert.equal(run().status, 2);
  assert.match(run().stderr, /usage: skysail-componentize-js \[--bundle FILE\] PROVIDER OUT/);
  assert.equal(run("--no-such-option").status, 2);
  assert.match(run("--help").stdout, /exports the interfaces of the provider/);
  const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  assert.equal(run("--version").stdout, `${version}\n`);
});
