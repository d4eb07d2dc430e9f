/** A host in memory, for native tests of a provider: `node --test` or any other runner. */
import { randomBytes } from "node:crypto";
import type * as contract from "./contract.js";
import { useHost } from "./host.js";
import type { AddressType, Fields, Node, NodeSet, Service } from "./types.js";

/** A request of the provider; a credential that it names is not in the headers. */
export interface SentRequest {
  method: string;
  url: URL;
  headers: Record<string, string>;
  body: string;
  credential: string | null;
}

/** What a test's cloud answers: a response, or why there is none. */
export type Answer =
  | { status?: number; headers?: Record<string, string>; body?: string | Uint8Array; json?: unknown }
  | { failure: contract.http.Failure };

/** An Event that the provider emitted. */
export interface Event {
  type: "Normal" | "Warning";
  reason: string;
  message: string;
}

// The rules of runtime/egress: the tests of both read guest-sdk/requests.json.
const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const urlBytesMax = 8 * 1024;
// Every proxy-… as well.
const hosts = [
  "connection",
  "content-length",
  "expect",
  "host",
  "http2-settings",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "accept-encoding",
  "cookie",
  "cookie2",
  "x-http-method",
  "x-http-method-override",
  "x-method-override",
  "x-original-url",
  "x-original-uri",
  "x-rewrite-url",
];

/** Installs itself; a test that does not want it any more calls `remove`. */
export class Host {
  /** The text that the provider reads. */
  cloudConfig: string;
  /** Answers the requests of the provider. Without it no request gets a response. */
  cloud: ((request: SentRequest) => Answer) | undefined;
  readonly requests: SentRequest[] = [];
  readonly events: Event[] = [];
  /** Level, message and fields of each line. */
  readonly logs: string[] = [];
  private readonly cache = new Map<string, Uint8Array>();

  constructor(options: { cloudConfig?: string; cloud?: (request: SentRequest) => Answer } = {}) {
    this.cloudConfig = options.cloudConfig ?? "";
    this.cloud = options.cloud;
    useHost({
      config: { text: () => this.cloudConfig },
      http: {
        send: (request) => {
          const answer = this.answer(request);
          if (answer.tag === "err") throw answer.val;
          return answer.val;
        },
        sendAll: (requests) => requests.map((request) => this.answer(request)),
      },
      log: {
        enabled: () => true,
        write: (level, message, fields) => {
          this.logs.push([level, message, ...fields.map(([key, value]) => `${key}=${value}`)].join(" "));
        },
      },
      cache: {
        get: (key) => this.cache.get(key) ?? null,
        set: (key, value) => {
          this.cache.set(key, value);
          return true;
        },
        compareAndSet: (key, expected, value) => {
          const present = this.cache.get(key);
          const isExpected = expected && present ? Buffer.compare(expected, present) === 0 : !expected && !present;
          if (isExpected) this.cache.set(key, value);
          return isExpected;
        },
        delete: (key) => {
          this.cache.delete(key);
        },
      },
      events: {
        emit: (kind, reason, message) => {
          this.events.push({ type: kind === "warning" ? "Warning" : "Normal", reason, message });
        },
      },
      random: (bytes) => new Uint8Array(randomBytes(bytes)),
    });
  }

  /** Leaves the provider without a host. */
  remove(): void {
    useHost(null);
  }

  private answer(
    request: contract.http.Request,
  ): { tag: "ok"; val: contract.http.Response } | { tag: "err"; val: contract.http.Failure } {
    const malformed = refused(request);
    if (malformed) return { tag: "err", val: { tag: "malformed", val: malformed } };
    const sent: SentRequest = {
      method: request.method,
      url: new URL(request.url),
      headers: Object.fromEntries(request.headers),
      body: request.body ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(request.body) : "",
      credential: request.credential,
    };
    this.requests.push(sent);
    const answer = this.cloud
      ? this.cloud(sent)
      : { failure: { tag: "unreachable" as const, val: "the test has no cloud" } };
    if ("failure" in answer) return { tag: "err", val: answer.failure };
    const { status = 200, headers = {}, body, json } = answer;
    const text = json === undefined ? (body ?? "") : JSON.stringify(json);
    const type = json === undefined ? {} : { "content-type": "application/json" };
    return {
      tag: "ok",
      val: {
        status,
        headers: Object.entries({ ...type, ...headers }).map(([name, value]) => [name.toLowerCase(), value]),
        body: typeof text === "string" ? new TextEncoder().encode(text) : text,
        extra: [],
      },
    };
  }
}

/** Why the host would not send the request. */
function refused(request: contract.http.Request): string | undefined {
  if (!methods.includes(request.method)) return `the method must be one of ${methods.join(", ")}`;
  const url = refusedUrl(request.url);
  if (url) return `${request.url}: ${url}`;
  for (const [header, value] of request.headers) {
    const name = header.toLowerCase();
    if (!/^[a-z0-9-]+$/.test(name)) return `servers read the header ${header} as another one`;
    if (/[\0-\x08\x0a-\x1f\x7f]/.test(value)) return `the value of the header ${name} has a control character`;
    if (hosts.includes(name) || name.startsWith("proxy-")) return `the host sets the header ${name} itself`;
    if (request.credential && isNotSentWithCredential(name, value)) {
      return `the header ${name} is not sent with a credential`;
    }
  }
  return undefined;
}

function refusedUrl(text: string): string | undefined {
  if (new TextEncoder().encode(text).length > urlBytesMax) return "the URL is too long";
  if (/[\s\\\p{Cc}]/u.test(text)) return "the URL has a space, a control character or a backslash";
  const authority = /^https?:\/\/([^/?#]+)/i.exec(text)?.[1];
  if (!authority) return "this is not an absolute http or https URL";
  if (authority.includes("@")) return "the URL has user information";
  const [path = ""] = text.slice(text.indexOf("://") + 3 + authority.length).split(/[?#]/);
  if (/\/(?:(?:\.|%2e)?%2e|%2e\.)(?:\/|$)/i.test(path)) return "the path has an encoded dot segment";
  try {
    return new URL(text).port === "0" ? "the URL has the port 0" : undefined;
  } catch {
    return "the URL has no valid host and port";
  }
}

/** Headers that a credential sets, or that choose how its echo would look. */
function isNotSentWithCredential(name: string, value: string): boolean {
  if (["authorization", "range", "accept-charset"].includes(name)) return true;
  if (name === "accept") return value.toLowerCase().includes("charset");
  return name.endsWith("-range") && name !== "content-range";
}

/** As those of the sandbox: without a prototype. */
const fields = (values: Fields = {}): Fields => Object.assign(Object.create(null) as Fields, values);

/** A Service with one port, and what the test changes of it. */
export const service = ({ labels, annotations, extra, ...changes }: Partial<Service> = {}): Service => ({
  namespace: "default",
  name: "web",
  uid: "0a1b2c3d-0000-4000-8000-000000000000",
  ports: [
    { name: "http", protocol: "TCP", appProtocol: null, port: 80, nodePort: 30080, targetPort: "8080", extra: {} },
  ],
  clientIPTimeoutSeconds: 0,
  loadBalancerIP: null,
  loadBalancerClass: null,
  sourceRanges: [],
  externalIPs: [],
  externalTrafficPolicy: "Cluster",
  internalTrafficPolicy: "Cluster",
  healthCheckNodePort: 0,
  ipFamilies: ["IPv4"],
  ipFamilyPolicy: "SingleStack",
  allocateNodePorts: true,
  status: { ingress: [] },
  ...changes,
  labels: fields(labels),
  annotations: fields(annotations),
  extra: fields(extra),
});

/** A set of nodes, sorted by name as the host's. */
export function nodes(...some: (Partial<Node> & { name: string })[]): NodeSet {
  const all = some
    .map(({ labels, annotations, extra, ...node }): Node => ({
      uid: "",
      providerId: null,
      addresses: [],
      podCidrs: [],
      ready: true,
      ...node,
      labels: fields(labels),
      annotations: fields(annotations),
      extra: fields(extra),
    }))
    .sort((one, other) => (one.name < other.name ? -1 : 1));
  const digest = (hash: number, letter: string) => (Math.imul(hash, 31) + letter.charCodeAt(0)) >>> 0;
  return {
    length: all.length,
    digest: () => [...JSON.stringify(all)].reduce(digest, 7),
    names: () => all.map(({ name }) => name),
    providerIds: () => all.map(({ providerId }) => providerId),
    addresses: (type: AddressType) =>
      all.map(({ addresses }) => addresses.filter((address) => address.type === type).map(({ address }) => address)),
    label: (key) => all.map(({ labels }) => labels[key] ?? null),
    get(index) {
      if (!Number.isInteger(index) || index < 0) throw new TypeError(`the index of a node is ${index}`);
      return all[index] ?? null;
    },
  };
}
