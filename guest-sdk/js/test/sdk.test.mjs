import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  allowedSources,
  API,
  cache,
  fetch,
  INI,
  internalIPs,
  isIPv4,
  loadConfig,
  notFound,
  offsetPages,
  pages,
  parseProviderId,
  ProviderError,
  requireTexts,
  Response,
  retryAfter,
  sendAll,
  sendEvery,
  unavailable,
  worst,
} from "@skysail/provider";
import { Host, nodes, service } from "@skysail/provider/testing";
import * as glue from "../dist/glue.js";
import { decode, encode, host as installed } from "../dist/host.js";

const api = (options = {}) => new API({ endpoint: "https://api.example.com/", credential: "api", ...options });
const thrown = (call) => {
  try {
    call();
  } catch (error) {
    return error;
  }
  assert.fail("nothing was thrown");
};
const problemsOf = (text, read) => {
  const ini = new INI(text);
  read(ini);
  return ini.problems().map(({ severity, line, key, message }) => `${severity} ${line} ${key}: ${message}`);
};

test("an INI file has sections, comments and quoted values", () => {
  const ini = new INI(
    '[Global] ; the cloud\nendpoint = https://x#y # a comment\nname = "a \\"b\\" \\\\ #c" ; d\nempty =\n[Other]\nKEY=1\n',
  );
  assert.equal(ini.required("global", "Endpoint"), "https://x#y");
  assert.equal(ini.optional("Global", "name"), 'a "b" \\ #c');
  assert.equal(ini.optional("Global", "empty"), "");
  assert.equal(ini.optional("Other", "key"), "1");
  assert.equal(ini.optional("Other", "absent"), undefined);
  assert.deepEqual(ini.problems(), []);
});

test("each problem of an INI file names line and key", () => {
  const text =
    '[Global\nnonsense\n[Global]\nkey = "open\nkey = "a" b\nkey = "a\\n"\ntwice = 1\ntwice = 2\nunknown = 1\n';
  assert.deepEqual(
    problemsOf(text, (ini) => ini.optional("Global", "twice")),
    [
      "fatal 1 : a section ends with ]",
      "fatal 2 nonsense: expected key = value",
      "fatal 4 Global.key: the quote is not closed",
      "fatal 5 Global.key: text behind the closing quote",
      'fatal 6 Global.key: after \\ only " and \\ may stand',
      "fatal 8 Global.twice: stands here a second time",
      "fatal 9 Global.unknown: is not a key of this provider",
    ],
  );
  assert.deepEqual(
    problemsOf("", (ini) => ini.required("Global", "endpoint")),
    ["fatal 0 Global.endpoint: is required"],
  );
});

test("a fatal problem prevents calls and a warning does not", () => {
  new Host({ cloudConfig: "[Global]\nold = 1\n" });
  const parse = (severity) => (text) => ({
    value: text.length,
    problems: [{ severity, line: 2, key: "Global.old", message: "is old" }],
  });
  assert.equal(loadConfig(parse("warning")), 17);
  const error = thrown(() => loadConfig(parse("fatal")));
  assert.deepEqual([error.code, error.message], ["invalid", "cloud-config, line 2, Global.old: is old"]);
});

test("segments and parameters are escaped, and an empty segment is refused", () => {
  // Without the parameter the list would be that of all objects.
  assert.throws(() => api().get("v1").query("name", undefined), /the parameter name is neither a string nor a number/);
  const request = api()
    .get("v1", "a/b", "..")
    .query("q", "x y&z+")
    .query("empty", "")
    .queryUnlessEmpty("none", "")
    .queryUnlessEmpty("n", 7);
  assert.equal(request.url, "https://api.example.com/v1/a%2Fb/%2E%2E?q=x%20y%26z%2B&empty=&n=7");
  assert.equal(thrown(() => api().delete("servers", "")).code, "internal");
  assert.equal(api({ endpoint: "https://x:8443/v1?a" }).origin, "https://x:8443");
});

test("the fake host refuses what the real one refuses", () => {
  const file = fileURLToPath(new URL("../../requests.json", import.meta.url));
  const { malformed, sent } = JSON.parse(readFileSync(file, "utf8"));
  const host = new Host({ cloud: () => ({ json: {} }) });
  const answer = ({ method, url, headers = [], credential }) => {
    const request = { method, url: url.replace("HOST", "cloud.test"), headers, credential, timeoutMs: 0, extra: [] };
    return installed().http.sendAll([request])[0];
  };
  assert.ok(malformed.length > 0 && sent.length > 0);
  for (const request of malformed) {
    assert.equal(answer(request).val?.tag, "malformed", JSON.stringify(request));
  }
  for (const request of sent) {
    assert.equal(answer(request).tag, "ok", JSON.stringify(request));
  }
  assert.equal(host.requests.length, sent.length);
  host.remove();
});

test("a request is the beginning of several", () => {
  const beginning = api().post("v1").header("X-A", "1");
  const [one, other] = [beginning.json({ a: "ä" }), beginning.form({ "a b": "c&d" })];
  const host = new Host({ cloud: () => ({ json: {} }) });
  sendEvery([one, other, beginning]);
  assert.deepEqual(
    host.requests.map(({ body, headers }) => [body, headers["content-type"], headers["x-a"]]),
    [
      ['{"a":"ä"}', "application/json", "1"],
      ["a%20b=c%26d", "application/x-www-form-urlencoded; charset=utf-8", "1"],
      ["", undefined, "1"],
    ],
  );
  assert.equal(host.requests[0].credential, "api");
});

const statuses = [
  [200, {}, null],
  [204, {}, null],
  [301, {}, "internal"],
  [400, {}, "invalid"],
  [401, {}, "denied"],
  [402, {}, "exhausted"],
  [403, {}, "denied"],
  [404, {}, "not-found"],
  [408, {}, "unavailable"],
  [409, {}, "retry-after"],
  [410, {}, "not-found"],
  [413, {}, "invalid"],
  [413, { "retry-after": "5" }, "retry-after"],
  [418, {}, "internal"],
  [422, {}, "invalid"],
  [423, {}, "retry-after"],
  [425, {}, "unavailable"],
  [429, {}, "retry-after"],
  [500, {}, "unavailable"],
  [503, {}, "unavailable"],
  [503, { "retry-after": "5" }, "retry-after"],
  [507, {}, "exhausted"],
  [600, {}, "internal"],
  [200, { "content-type": "text/html; charset=utf-8" }, "unavailable"],
  [404, { "content-type": "TEXT/HTML" }, "unavailable"],
];
for (const [status, headers, code] of statuses) {
  test(`a response ${status} with ${JSON.stringify(headers)} is ${code ?? "a success"}`, () => {
    new Host({ cloud: () => ({ status, headers, body: "{}" }) });
    const [result] = sendAll([api().get("x")]);
    assert.equal(result instanceof ProviderError ? result.code : null, code);
    // The status of fetch is the caller's business.
    assert.equal(fetch("https://api.example.com/x").status, status);
  });
}

test("a wait is seconds, a date, or an epoch beside the cloud's date", () => {
  const date = "Fri, 27 Nov 2026 20:00:00 GMT";
  const epoch = Date.parse(date) / 1000;
  const wait = (status, headers) => {
    new Host({ cloud: () => ({ status, headers: { date, ...headers } }) });
    return thrown(() => api().get("x").send()).afterMs;
  };
  assert.equal(wait(429, { "retry-after": "7" }), 7000);
  assert.equal(wait(503, { "retry-after": "Fri, 27 Nov 2026 20:01:00 GMT" }), 60_000);
  assert.equal(wait(429, { "x-ratelimit-reset": String(epoch + 3) }), 3000);
  assert.equal(wait(429, { "ratelimit-reset": String((epoch - 3) * 1000) }), 0);
  assert.equal(wait(429, { "retry-after": "soon" }), 0);
  // A 503 that names no time is an outage, which is shown; "1.5" is no HTTP date.
  new Host({ cloud: () => ({ status: 503, headers: { date, "retry-after": "1.5" } }) });
  assert.equal(thrown(() => api().get("x").send()).code, "unavailable");
});

test("an error names request, status and what the cloud said", () => {
  const said = (body) => {
    new Host({ cloud: () => ({ status: 400, body }) });
    return thrown(() => api().get("x").query("secret", "1").send()).message;
  };
  const start = "GET https://api.example.com/x: status 400";
  assert.equal(said('{"error": {"message": "no"}}'), `${start}: no`);
  assert.equal(said('{"badRequest": {"message": "no", "code": 1}}'), `${start}: no`);
  assert.equal(said('{"error": "no"}'), `${start}: no`);
  assert.equal(said(" text "), `${start}: text`);
  assert.equal(said(""), start);
  assert.equal(said("x".repeat(1000)), `${start}: ${"x".repeat(300)}…`);
});

test("a request without a response is the error of its cause", () => {
  const codes = {
    forbidden: "denied",
    limited: "unavailable",
    malformed: "internal",
    unreachable: "unavailable",
    tls: "unavailable",
    interrupted: "unavailable",
    timeout: "unavailable",
    "too-large": "internal",
    "credential-refused": "denied",
    "credential-unavailable": "unavailable",
    other: "unavailable",
  };
  for (const [tag, code] of Object.entries(codes)) {
    const val = { timeout: undefined, "too-large": 7, other: ["new", "case"] };
    new Host({
      cloud: () => ({ failure: { tag, ...(tag === "timeout" ? {} : { val: tag in val ? val[tag] : "why" }) } }),
    });
    for (const error of [thrown(() => api().get("x").send()), sendAll([api().get("x")])[0]]) {
      assert.equal(error.code, code, tag);
      assert.match(error.message, /^GET https:\/\/api.example.com\/x: /);
      if (!["timeout", "too-large", "other"].includes(tag)) assert.match(error.message, /: why$/);
    }
  }
  new Host();
  assert.equal(thrown(() => api().get("x").header("Cookie", "a").send()).code, "internal");
});

test("a header that comes twice has both values", () => {
  const host = new Host({ cloud: () => ({ json: {}, headers: { Link: "a" } }) });
  assert.equal(api().get("x").send().headers.get("LINK"), "a");
  assert.equal(api().get("x").send().headers.get("absent"), null);
  host.remove();
  const response = new Response(
    {
      status: 200,
      headers: [
        ["link", "a"],
        ["date", "b"],
        ["link", "c"],
      ],
      body: new Uint8Array(),
    },
    "GET x",
  );
  assert.equal(response.headers.get("Link"), "a, c");
});

test("a body that is not UTF-8 is an error, and the text of another one is as the cloud wrote it", () => {
  for (const text of ["", "abc", "äöü", "漢字 🌍", "\ufeffx"]) assert.equal(decode(encode(text)), text);
  assert.equal(decode(Uint8Array.of(0x61, 0xff)), undefined);
  new Host({ cloud: () => ({ body: Uint8Array.of(0x22, 0xff, 0x22) }) });
  assert.match(thrown(() => api().get("x").send().json()).message, /status 200: the body is not UTF-8$/);
  new Host({ cloud: () => ({ status: 400, body: Uint8Array.of(0xff) }) });
  assert.match(thrown(() => api().get("x").send()).message, /status 400: the body is not UTF-8$/);
});

test("a list with a member that is no text is an error", () => {
  assert.doesNotThrow(() => requireTexts([{ id: "1", name: "a" }], "servers", "id", "name"));
  const message = (value) => thrown(() => requireTexts(value, "servers", "id", "name")).message;
  assert.equal(message({}), "servers: not a list");
  assert.equal(message([null]), "servers[0]: not an object");
  assert.equal(
    message([
      { id: "1", name: "a" },
      { id: 42, name: "b" },
    ]),
    "servers[1].id: not a text with at least one character",
  );
  assert.equal(message([{ id: "1" }]), "servers[0].name: not a text with at least one character");
});

test("an empty body and null are errors, not nothing", () => {
  for (const body of ["", "null", "{"]) {
    new Host({ cloud: () => ({ body }) });
    assert.equal(thrown(() => api().get("x").send().json()).code, "internal", body);
  }
});

test("a list by offset is read again where an entry moved", () => {
  const read = (list, before) => {
    let page = 0;
    return offsetPages(
      (id) => id,
      (offset) => {
        list = before(page++, list) ?? list;
        return { entries: list.slice(offset, offset + 2), total: list.length };
      },
    );
  };
  const five = ["a", "b", "c", "d", "e"];
  assert.deepEqual(
    read(five, () => undefined),
    five,
  );
  assert.deepEqual(
    read([], () => undefined),
    [],
  );
  assert.deepEqual(
    read(five, (page, list) => (page === 1 ? list.slice(1) : list)),
    five.slice(1),
  );
  // Created in front and deleted at the end: the total stays, and "b" comes twice.
  const shifted = ["new", "a", "b", "c", "d"];
  assert.deepEqual(
    read(five, (page) => (page === 1 ? shifted : undefined)),
    shifted,
  );
  assert.equal(thrown(() => read(["a", "b", "c"], (page, list) => [...list, `${page}`])).code, "unavailable");
  const endless = (offset) => ({ entries: [`${offset}`], total: 2 ** 40 });
  assert.equal(thrown(() => offsetPages((id) => id, endless)).code, "unavailable");
});

test("a link is followed within the origin only", () => {
  const link = '<http://c/v1/a?page=1>; rel="prev", </v1/a?f=a,b&page=2>; title=x; REL = "last next", </>; rel=up';
  const host = new Host({
    cloud: ({ url }) => ({ json: [], headers: url.search ? { link: "<http://c/v1/a?page=3>;rel=next" } : { link } }),
  });
  const cloud = api({ endpoint: "http://c/v1" });
  const second = cloud.follow(cloud.get("a").send().nextLink).send();
  cloud.follow(second.nextLink).send();
  assert.deepEqual(
    host.requests.map(({ url, credential }) => [url.href, credential]),
    ["http://c/v1/a", "http://c/v1/a?f=a,b&page=2", "http://c/v1/a?page=3"].map((url) => [url, "api"]),
  );
  for (const other of [
    "http://evil/v1",
    "https://c/v1",
    "//evil/",
    "http://c:81/",
    "http://u@c/",
    "http://c.evil/",
    "",
  ]) {
    assert.equal(thrown(() => cloud.follow(other)).code, "internal", other);
  }
  host.remove();
});

test("a value is parsed, and a key may stand several times", () => {
  const ini = new INI("[A]\nn = 7\nbad = x\nzone = a\nZone = b\n");
  const number = (text) => {
    if (!/^\d+$/.test(text)) throw new Error("is not a number");
    return Number(text);
  };
  assert.deepEqual([ini.read("A", "n", number), ini.read("A", "absent", number)], [7, undefined]);
  assert.equal(ini.read("A", "bad", number), undefined);
  assert.deepEqual(ini.list("A", "zone"), ["a", "b"]);
  assert.deepEqual(ini.problems(), [{ severity: "fatal", line: 3, key: "A.bad", message: '"x": is not a number' }]);
});

test("pages end at an empty cursor, and a cursor that comes twice is an error", () => {
  assert.deepEqual(
    pages((cursor) => ({ entries: [cursor], next: cursor === "" ? "a" : null })),
    ["", "a"],
  );
  assert.equal(thrown(() => pages(() => ({ entries: [], next: "a" }))).code, "unavailable");
});

test("the worst error is one that a wait does not mend, and not-found only where all are", () => {
  const errors = [
    notFound("a"),
    unavailable("b"),
    retryAfter(1, "c"),
    retryAfter(9, "d"),
    new ProviderError("denied", "e"),
  ];
  assert.equal(worst(errors).message, "e");
  assert.equal(worst(errors.slice(0, 4)).message, "d");
  assert.equal(worst(errors.slice(0, 1)).message, "a");
  assert.equal(worst([]), undefined);
});

test("the cache keeps JSON, and a change that loses a race is repeated", () => {
  const host = new Host();
  assert.equal(cache.get("a"), undefined);
  assert.deepEqual(
    cache.getOr("a", 1000, () => ({ b: "ä" })),
    { b: "ä" },
  );
  assert.deepEqual(
    cache.getOr("a", 1000, () => assert.fail("it is there")),
    { b: "ä" },
  );
  let calls = 0;
  const changed = cache.update("count", 1000, (before = 0) => {
    // Another call changes the value in between, once.
    if (calls++ === 0) cache.set("count", 10, 1000);
    return before + 1;
  });
  assert.deepEqual([changed, calls, cache.get("count")], [11, 2, 11]);
  host.remove();
  assert.match(thrown(() => cache.get("a")).message, /new Host\(\)/);
});

test("source ranges are a sorted set of networks", () => {
  const ranges = (sourceRanges, ipFamilies = ["IPv4"]) =>
    allowedSources(service({ sourceRanges, ipFamilies })).map(({ address, bits }) => `${address}/${bits}`);
  assert.deepEqual(ranges([" 10.1.2.3/8", "10.0.0.0/8 ", "192.168.1.129/25", "2001:db8::1/32"]), [
    "10.0.0.0/8",
    "192.168.1.128/25",
    "2001:db8::/32",
  ]);
  assert.deepEqual(ranges([], ["IPv6", "IPv4"]), ["0.0.0.0/0", "::/0"]);
  for (const wrong of ["10.0.0.0", "10.0.0.0/33", "10.1/8", "010.0.0.0/8", "0x0a.0.0.0/8", "x/8", "::/129", ""]) {
    assert.equal(thrown(() => ranges([wrong])).code, "invalid", wrong);
  }
});

test("addresses of a family are found, and texts that are none are not", () => {
  const ip = (...addresses) => addresses.map((address) => ({ type: "InternalIP", address }));
  const set = nodes(
    { name: "b", addresses: ip("fd00::1", "10.0.0.2", "10.0.0.3") },
    { name: "a", addresses: ip("10.0.0.1") },
    { name: "c" },
  );
  assert.deepEqual(internalIPs(set, "IPv4"), ["10.0.0.1", "10.0.0.2"]);
  assert.deepEqual(internalIPs(set, "IPv6"), ["fd00::1"]);
  for (const text of ["10.0.0", "10.0.0.256", "10.0.0.1.", "10.0.0.1.1", "010.0.0.1", "01.2.3.4", "a.b.c.d", ""])
    assert.equal(isIPv4(text), false, text);
  assert.equal(isIPv4("255.0.10.199"), true);
});

test("a provider ID of another scheme is invalid", () => {
  assert.equal(parseProviderId("example", "example://a/b"), "a/b");
  for (const id of ["example://", "other://a", "a", ""])
    assert.equal(parseProviderId("example", id).code, "invalid", id);
});

const held = { len: () => 1, names: () => ["a"], providerIds: () => [null] };
const good = { providerId: "x://1" };

test("what a provider returns in a wrong shape is an internal error that names it", () => {
  new Host();
  const outer = (call) => {
    const { tag, val } = thrown(call);
    assert.equal(tag, "internal");
    return val;
  };
  const describe = (result) => glue.instances({ describe: () => result }).describe(held, "state");
  assert.equal(
    outer(() => describe(undefined)),
    "the result of describe is not an array: undefined",
  );
  assert.match(
    outer(() => describe(Promise.resolve([]))),
    /^the result of describe is not an array: a Promise: the functions/,
  );
  const inner = (instance) => {
    const [first, second] = describe([good, instance]);
    assert.deepEqual([first.tag, second.tag, second.val.tag], ["ok", "err", "internal"]);
    return second.val.val;
  };
  assert.equal(inner(null), "the result of a node is not an object: null");
  assert.equal(inner({ ...good, zone: 7 }), "the result of a node.zone is not a string: 7");
  // JSON of a cloud may have a text, which JavaScript takes for true.
  assert.equal(inner({ ...good, shutdown: "false" }), "the result of a node.shutdown is not a boolean: false");
  const addresses = [{ type: "Hostname", address: "a" }, { type: "InternalIP" }];
  assert.equal(inner({ ...good, addresses }), "the result of a node.addresses[1].address is not a string: undefined");
  assert.equal(inner({ ...good, labels: { a: null } }), 'the result of a node.labels["a"] is not a string: null');
  assert.match(inner({ ...good, labels: new Map([["a", "b"]]) }), /labels is not an object with a member for each key/);
  const ensure = (result) =>
    outer(() => glue.loadBalancers({ ensure: () => result }).ensure("", contractService, held));
  assert.equal(ensure({}), "the result of ensure.ingress is not an array: undefined");
  assert.equal(
    ensure({ ingress: [{ ip: "1.2.3.4", ipMode: "vip" }] }),
    "the result of ensure.ingress[0].ipMode is not one of VIP, Proxy: vip",
  );
  assert.match(
    outer(() => glue.loadBalancers({ update: async () => {} }).update("", contractService, held)),
    /a Promise/,
  );
  const list = (route) =>
    outer(() => glue.routes({ list: () => [{ name: "a", destinationCidr: "b", ...route }] }).list(""));
  assert.match(list({ target: null, blackhole: "no" }), /^the result of list\[0\].blackhole is not a boolean: no$/);
  assert.match(list({}), /^the result of list\[0\].target is not an object: undefined$/);
  // A function of `map` without return is no success.
  const [created] = glue.routes({ create: () => [undefined] }).create("", []);
  assert.deepEqual(created, {
    tag: "err",
    val: { tag: "internal", val: "the result of a route is not null or a ProviderError: undefined" },
  });
});

test("an exception of a bug ends the call with its text, whatever shape it has", () => {
  const host = new Host();
  const thrownValues = [
    new TypeError("a bug"),
    { tag: "not-found", val: "x" },
    Object.assign(new Error("b"), { payload: { tag: "not-found", val: "" } }),
    "text",
  ];
  for (const value of thrownValues) {
    const error = thrown(() =>
      glue
        .loadBalancers({
          ensureDeleted: () => {
            throw value;
          },
        })
        .ensureDeleted("", contractService),
    );
    assert.ok(error instanceof Error && !("payload" in error) && !("tag" in error));
    assert.match(error.message, /^uncaught /);
  }
  assert.equal(host.logs.length, thrownValues.length);
  assert.ok(
    host.logs.every((line) => line.startsWith("error uncaught ") && line.endsWith("panic=true")),
    host.logs.join("\n"),
  );
});

test("a provider that lacks a function of an interface is refused when it is built", () => {
  const update = () => {};
  assert.throws(
    () => glue.requireFunctions("loadBalancers", { name: update, get: update, ensure: update, update }),
    /the export loadBalancers has no function ensureDeleted/,
  );
  assert.throws(() => glue.requireFunctions("routes", undefined), /the export routes has no function list/);
  assert.doesNotThrow(() => glue.requireFunctions("instances", { describe: update }));
});

const contractService = {
  labels: [
    ["__proto__", "a"],
    ["constructor", "b"],
  ],
  annotations: [],
  ports: [],
  sessionAffinity: { tag: "client-ip", val: 7 },
  status: { ingress: [] },
  ipFamilies: ["ipv6"],
  ipFamilyPolicy: null,
  externalTrafficPolicy: "local",
  internalTrafficPolicy: "cluster",
  sourceRanges: [],
  externalIps: [],
  extra: [],
};

test("labels may have any name", () => {
  new Host();
  const name = glue.loadBalancers({
    name: (_, { labels }) => `${labels["__proto__"]} ${labels.constructor} ${labels.toString}`,
  }).name;
  assert.equal(name("", contractService), "a b undefined");
});

test("errors of a provider reach the host as the contract has them, with text that is UTF-8", () => {
  new Host();
  const fail = (error) =>
    thrown(() =>
      glue
        .routes({
          list: () => {
            throw error;
          },
        })
        .list(""),
    );
  assert.deepEqual(fail(retryAfter(1.6, "later")), { tag: "retry-after", val: { afterMs: 2, message: "later" } });
  assert.deepEqual(fail(retryAfter(-1, "now")), { tag: "retry-after", val: { afterMs: 0, message: "now" } });
  for (const wait of [1e20, Infinity]) assert.equal(fail(retryAfter(wait, "late")).val.afterMs, 3_600_000);
  assert.equal(fail(retryAfter(NaN, "now")).val.afterMs, 0);
  assert.deepEqual(fail(notFound("\ud800")), { tag: "not-found", val: "\ufffd" });
  const results = glue.routes({ create: () => [null, notFound("x")] }).create("", []);
  assert.deepEqual(results, [{ tag: "ok" }, { tag: "err", val: { tag: "not-found", val: "x" } }]);
});

const examples = mkdtempSync(join(fileURLToPath(new URL("../dist", import.meta.url)), "example-"));
const [provider, providerTest] = readFileSync(new URL("../README.md", import.meta.url), "utf8").match(
  /(?<=```js\n)[^]*?(?=```)/g,
);
// Within the package, so that its name is found.
writeFileSync(join(examples, "provider.js"), provider);
writeFileSync(join(examples, "provider.test.js"), providerTest);
const { identity, instances } = await import(join(examples, "provider.js"));
await import(join(examples, "provider.test.js"));
rmSync(examples, { recursive: true });

test("the example of the README finds machines by ID and name, and deletes no node by mistake", () => {
  assert.equal(identity.describe().name, "example");
  const cloudConfig = "[Global]\nendpoint = https://api.example.com\n";
  assert.deepEqual(
    [identity.checkConfig(cloudConfig), identity.origins(cloudConfig)],
    [[], ["https://api.example.com"]],
  );
  assert.equal(identity.checkConfig("[Global]\nendpoitn = x\n").length, 2);
  const servers = [
    { id: "1", name: "a", ip: "10.0.0.1", zone: "z" },
    { id: "2", name: "renamed", ip: "10.0.0.2", zone: "z" },
  ];
  const host = new Host({ cloudConfig, cloud: () => ({ json: servers }) });
  const asked = nodes(
    { name: "a" },
    { name: "b", providerId: "example://2" },
    { name: "c" },
    { name: "d", providerId: "other://1" },
    { name: "e", providerId: "example://9" },
  );
  const found = instances
    .describe(asked, "metadata")
    .map((one) => (one instanceof ProviderError ? one.code : one.providerId));
  assert.deepEqual(found, ["example://1", "example://2", "not-found", "invalid", "not-found"]);
  for (const wrong of [{ servers }, [{ ...servers[0], id: 1 }], [{ id: "1" }], ["a"]]) {
    host.cloud = () => ({ json: wrong });
    assert.equal(thrown(() => instances.describe(asked, "state")).code, "internal", JSON.stringify(wrong));
  }
});
