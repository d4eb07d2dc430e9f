import assert from "node:assert/strict";
import { test } from "node:test";
import { Host, nodes, service } from "@skysail/provider/testing";
import { identity, instances, loadBalancers } from "./provider.js";

test("a load balancer has an address of the pool", () => {
  new Host({ cloudConfig: "[LoadBalancer]\npool = 10.0.0.0/30\n" });
  const { ingress } = loadBalancers.ensure("cluster", service(), nodes());
  assert.match(ingress[0].ip, /^10\.0\.0\.[0-3]$/);
});

test("a wrong pool is refused with its line", () => {
  const [problem] = identity.checkConfig("[LoadBalancer]\npool = many\n");
  assert.deepEqual([problem.severity, problem.line, problem.key], ["fatal", 2, "LoadBalancer.pool"]);
});

test("every node has an instance", () => {
  const [instance] = instances.describe(nodes({ name: "a" }), "metadata");
  assert.equal(instance.providerId, "example://a");
});
