import type * as contract from "./contract.js";
import {
  denied,
  exhausted,
  internal,
  invalid,
  isNotFound,
  notFound,
  ProviderError,
  retryAfter,
  unavailable,
  worst,
} from "./errors.js";
import { decode, encode, host, milliseconds, wellFormed } from "./host.js";

/** A request as `fetch` takes one. */
export interface RequestInit {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array | null;
  /** Name of the operator's credential that the host adds. */
  credential?: string;
  /** Timeout of the whole exchange in milliseconds; 0 or absent for the host's limits alone. */
  timeoutMs?: number;
}

const raw = (url: string, init: RequestInit): contract.http.Request => ({
  method: wellFormed(init.method ?? "GET"),
  url: wellFormed(url),
  headers: Object.entries(init.headers ?? {}).map(([name, value]) => [wellFormed(name), wellFormed(value)]),
  body: typeof init.body === "string" ? encode(init.body) : (init.body ?? null),
  credential: init.credential ? wellFormed(init.credential) : null,
  // 0 sets none: a shorter one than a millisecond is one.
  timeoutMs: init.timeoutMs ? Math.max(milliseconds(init.timeoutMs, 0xffff_ffff), 1) : 0,
  extra: [],
});

const line = (request: contract.http.Request) => `${request.method} ${request.url.split("?", 1)[0]}`;

/**
 * Sends a request and returns the response, whatever its status is. As the `fetch` of browsers, but
 * it returns when the response is complete: the functions of a provider are synchronous. The host
 * follows no redirect and repeats nothing.
 */
export function fetch(url: string, init: RequestInit = {}): Response {
  const request = raw(url, init);
  try {
    return new Response(host().http.send(request), line(request));
  } catch (failure) {
    throw failed(request, failure);
  }
}

/**
 * The error of a request that got no response. The engine throws an Error whose
 * payload is the contract's value.
 */
function failed(request: contract.http.Request, thrown: unknown): unknown {
  const payload = thrown instanceof Error && "payload" in thrown ? thrown.payload : thrown;
  if (typeof payload !== "object" || payload === null || !("tag" in payload)) return thrown;
  const known = payload as contract.http.Failure;
  const said = saidBy(known);
  const error = (make: (message: string) => ProviderError, what: string) =>
    make(`${line(request)}: ${what}${said ? `: ${said}` : ""}`);
  switch (known.tag) {
    case "forbidden":
      return error(denied, "the operator does not allow the request");
    case "limited":
      return error(unavailable, "a limit of the sandbox was met");
    case "malformed":
      return error(internal, "not a request that can be sent");
    case "unreachable":
      return error(unavailable, "the cloud is unreachable");
    case "tls":
      return error(unavailable, "no trusted connection to the cloud");
    case "interrupted":
      return error(unavailable, "the response was cut off");
    case "timeout":
      return error(unavailable, "the cloud did not answer in time");
    case "too-large":
      return error(internal, "the response is larger than the sandbox allows");
    case "credential-refused":
      return error(denied, "the login was refused");
    case "credential-unavailable":
      return error(unavailable, "no login is possible now");
    case "other":
      return error(unavailable, "no response");
  }
}

function saidBy(failure: contract.http.Failure): string {
  switch (failure.tag) {
    case "timeout":
      return "";
    case "too-large":
      return failure.val > 0 ? `${failure.val} bytes` : "";
    case "other":
      return failure.val.join(": ");
    default:
      return failure.val;
  }
}

/** A response; its names are those of the web. */
export class Response {
  readonly status: number;
  /** All values of a header, joined by ", "; null without one. */
  readonly headers: { get(name: string): string | null };
  readonly body: Uint8Array;

  constructor(
    private readonly response: contract.http.Response,
    private readonly line: string,
  ) {
    this.status = response.status;
    this.body = response.body;
    this.headers = {
      get: (name) => {
        const values = this.values(name);
        return values.length ? values.join(", ") : null;
      },
    };
  }

  private values(name: string): string[] {
    const wanted = name.toLowerCase();
    return this.response.headers.filter(([found]) => found === wanted).map(([, value]) => value);
  }

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** The body as text; throws `internal` where it is not UTF-8. */
  text(): string {
    const text = decode(this.body);
    if (text === undefined) throw internal(this.message("the body is not UTF-8"));
    return text;
  }

  /**
   * The body as JSON; throws `internal` where it is something else, empty or null: what is absent
   * must not read as "there is none". Check what is inside, for example by `requireTexts`.
   */
  json(): unknown {
    let value: unknown;
    try {
      value = JSON.parse(this.text());
    } catch (error) {
      if (error instanceof ProviderError) throw error;
      throw internal(`${this.line}: unexpected JSON: ${error instanceof Error ? error.message : error}`);
    }
    if (value === null) throw internal(`${this.line}: the response is null`);
    return value;
  }

  /** The target of `Link: <…>; rel="next"`; undefined for none. */
  get nextLink(): string | undefined {
    // A target may have commas, but no angle brackets.
    for (const link of this.values("link").flatMap((value) => value.split("<").slice(1))) {
      const [target = "", parameters = ""] = link.split(">");
      if (parameters.split(";").some((one) => /^\s*rel\s*=\s*"?(?:[^"]*\s)?next(?:["\s,]|$)/i.test(one))) return target;
    }
    return undefined;
  }

  /** The text of an error about this response: request, status and what the cloud said. */
  message(said: string): string {
    return `${this.line}: status ${this.status}${said ? `: ${said}` : ""}`;
  }

  /** The wait that the response asks for, in milliseconds; undefined for none. */
  get retryAfterMs(): number | undefined {
    const names = ["retry-after", ...(this.status === 429 ? ["ratelimit-reset", "x-ratelimit-reset"] : [])];
    for (const name of names) {
      const wait = this.wait(this.values(name)[0]?.trim() ?? "");
      if (wait !== undefined) return wait;
    }
    return undefined;
  }

  private wait(value: string): number | undefined {
    let then: number;
    if (/^\d+$/.test(value)) {
      const number = Number(value);
      // From here on a number is seconds, or milliseconds, since 1970.
      if (number < 1e9) return number * 1000;
      then = number < 1e12 ? number * 1000 : number;
    } else {
      then = dateOf(value);
    }
    // The cloud's clock may differ from this one.
    const now = dateOf(this.values("date")[0]?.trim() ?? "");
    return Number.isFinite(then) && Number.isFinite(now) ? Math.max(then - now, 0) : undefined;
  }

  /** The error that the status means; null for success. */
  error(): ProviderError | null {
    const isHTML = /^\s*text\/html\s*(;|$)/i.test(this.headers.get("content-type") ?? "");
    if (isHTML && (this.status < 300 || this.status === 404 || this.status === 410)) {
      return unavailable(this.message("a page in HTML, which is not an answer of the API"));
    }
    if (this.status < 300) return null;
    const message = this.message(detail(this.body));
    const wait = this.retryAfterMs;
    switch (this.status) {
      case 401:
      case 403:
        return denied(message);
      case 404:
      case 410:
        return notFound(message);
      case 409:
      case 423:
      case 429:
        return retryAfter(wait ?? 0, message);
      case 413:
      case 503:
        if (wait !== undefined) return retryAfter(wait, message);
        return this.status === 413 ? invalid(message) : unavailable(message);
      case 400:
      case 422:
        return invalid(message);
      case 402:
      case 507:
        return exhausted(message);
      case 408:
      case 425:
        return unavailable(message);
    }
    return this.status >= 500 && this.status < 600 ? unavailable(message) : internal(message);
  }
}

/** An HTTP date; `Date.parse` alone reads 1.5 as a date, too. */
const dateOf = (text: string): number =>
  /^\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(text) ? Date.parse(text) : NaN;

const detailMax = 300;
/** A body with more brackets is not read: JSON of that depth could use up the stack. */
const bracketsMax = 100;

/** What a body says about an error, in the members that most APIs have. */
function detail(body: Uint8Array): string {
  const text = decode(body) ?? "the body is not UTF-8";
  let said = text.trim();
  if ((text.match(/[[{]/g)?.length ?? 0) <= bracketsMax) {
    try {
      said = memberOf(JSON.parse(text)) || said;
    } catch {
      // Not JSON: the text itself.
    }
  }
  return said.length <= detailMax ? said : `${wellFormed(said.slice(0, detailMax))}…`;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function memberOf(body: unknown): string {
  if (!isObject(body)) return typeof body === "string" ? body : "";
  const values = Object.values(body);
  const inner = values.length === 1 && isObject(values[0]) ? values[0] : (body["error"] ?? body);
  if (!isObject(inner)) return typeof inner === "string" ? inner : "";
  for (const key of ["message", "detail", "title", "faultstring", "error"]) {
    const found = inner[key];
    if (typeof found === "string") return found;
  }
  return "";
}

/** The root of an HTTP API that speaks JSON. */
export class API {
  readonly endpoint: string;
  private readonly init: Pick<RequestInit, "credential" | "timeoutMs">;
  /** Finds errors that a status does not tell. */
  readonly judge: (response: Response) => ProviderError | null;

  constructor(options: {
    endpoint: string;
    credential?: string;
    timeoutMs?: number;
    judge?: (response: Response) => ProviderError | null;
  }) {
    const { endpoint, judge, ...init } = options;
    this.endpoint = endpoint;
    this.init = init;
    this.judge = judge ?? (() => null);
  }

  /** Scheme, host and port of the endpoint. */
  get origin(): string {
    return /^(?:[^/?#]*:\/\/)?[^/?#]*/.exec(this.endpoint)?.[0] ?? this.endpoint;
  }

  /** Begins a request to the path that the segments are; each is escaped. */
  request(method: string, ...segments: string[]): Request {
    const root = this.endpoint.replace(/\/+$/, "");
    // DELETE /servers/ is another request than DELETE /servers/ID.
    if (segments.some((segment) => segment === "")) throw internal(`${method} ${root}: a segment of the path is empty`);
    const url = [root, ...segments.map(escapeSegment)].join("/");
    return new Request(this, url, { method, headers: { accept: "application/json" }, ...this.init });
  }

  get(...segments: string[]): Request {
    return this.request("GET", ...segments);
  }

  /**
   * Begins a GET of a link that the cloud returned, such as that of the next page: a URL, or a path
   * from the root. A link to another origin is refused, because the request would carry the
   * credential there.
   */
  follow(link: string): Request {
    const isPath = link.startsWith("/") && !link.startsWith("//");
    if (!isPath && !link.startsWith(`${this.origin}/`)) {
      throw internal(`the link ${JSON.stringify(link)} is no path, and leads to another origin than ${this.origin}`);
    }
    const init: RequestInit = { method: "GET", headers: { accept: "application/json" }, ...this.init };
    return new Request(this, isPath ? this.origin + link : link, init);
  }

  post(...segments: string[]): Request {
    return this.request("POST", ...segments);
  }
  put(...segments: string[]): Request {
    return this.request("PUT", ...segments);
  }
  patch(...segments: string[]): Request {
    return this.request("PATCH", ...segments);
  }
  delete(...segments: string[]): Request {
    return this.request("DELETE", ...segments);
  }
}

// A segment "." or ".." would mean another path.
const escapeSegment = (segment: string) =>
  segment === "." || segment === ".." ? segment.replaceAll(".", "%2E") : escaped(segment);

const escaped = (text: string) => encodeURIComponent(wellFormed(text));

/**
 * A request that is being built. Each method returns a new one, so that a request can be
 * the beginning of several.
 */
export class Request {
  constructor(
    readonly api: API,
    readonly url: string,
    readonly init: RequestInit,
  ) {}

  /**
   * Adds a parameter, an empty one too: without it a filter would be gone, and a
   * list be that of all objects.
   */
  query(key: string, value: string | number): Request {
    if (typeof value !== "string" && typeof value !== "number") {
      throw new TypeError(`the parameter ${key} is neither a string nor a number: ${value}`);
    }
    const separator = this.url.includes("?") ? "&" : "?";
    return new Request(this.api, `${this.url}${separator}${escaped(key)}=${escaped(String(value))}`, this.init);
  }

  /** Adds a parameter that has a value. */
  queryUnlessEmpty(key: string, value: string | number | null | undefined): Request {
    return value === null || value === undefined || value === "" ? this : this.query(key, value);
  }

  header(name: string, value: string): Request {
    return this.with({ headers: { ...this.init.headers, [name.toLowerCase()]: value } });
  }

  /** Sets the body to JSON. */
  json(value: unknown): Request {
    return this.body("application/json", JSON.stringify(value));
  }

  /** Sets the body to the pairs of a form. */
  form(values: Record<string, string>): Request {
    const pairs = Object.entries(values).map(([key, value]) => `${escaped(key)}=${escaped(value)}`);
    return this.body("application/x-www-form-urlencoded; charset=utf-8", pairs.join("&"));
  }

  body(contentType: string, body: string | Uint8Array): Request {
    return this.header("content-type", contentType).with({ body });
  }

  private with(init: Partial<RequestInit>): Request {
    return new Request(this.api, this.url, { ...this.init, ...init });
  }

  /** Sends the request; throws the error that the response means. */
  send(): Response {
    const response = fetch(this.url, this.init);
    const error = this.api.judge(response) ?? response.error();
    if (error) throw error;
    return response;
  }
}

/** Sends requests at the same time. The results are in the order of the requests. */
export function sendAll(requests: readonly Request[]): (Response | ProviderError)[] {
  if (requests.length === 0) return [];
  const raws = requests.map((request) => raw(request.url, request.init));
  const answers = host().http.sendAll(raws);
  return requests.map((request, index) => {
    const [answer, sent] = [answers[index], raws[index]];
    if (!answer || !sent) return internal("the host returned fewer responses than requests");
    if (answer.tag === "err") {
      const error = failed(sent, answer.val);
      if (error instanceof ProviderError) return error;
      throw error;
    }
    const response = new Response(answer.val, line(sent));
    return request.api.judge(response) ?? response.error() ?? response;
  });
}

/** Sends requests at the same time and returns all responses; throws the worst error. */
export function sendEvery(requests: readonly Request[]): Response[] {
  const results = sendAll(requests);
  const error = worst(results.filter((result) => result instanceof ProviderError));
  if (error) throw error;
  return results.filter((result) => result instanceof Response);
}

/** For deletions: throws an error unless the error says that the object does not exist. */
export function absentOk(result: Response | ProviderError): void {
  if (result instanceof ProviderError && !isNotFound(result)) throw result;
}

const pagesMax = 1000;

/**
 * Collects a list that the cloud returns in pages, by the cursor of the next page; an absent
 * or empty one ends the list.
 */
export function pages<T>(page: (cursor: string) => { entries: readonly T[]; next?: string | null | undefined }): T[] {
  const all: T[] = [];
  const seen = new Set<string>();
  let cursor = "";
  for (let count = 0; count < pagesMax; count++) {
    const { entries, next } = page(cursor);
    for (const entry of entries) all.push(entry);
    if (!next) return all;
    if (seen.has(next)) throw unavailable(`the list does not end: cursor ${JSON.stringify(next)} came twice`);
    seen.add(next);
    cursor = next;
  }
  throw unavailable(`the list does not end after ${pagesMax} pages`);
}

/** How often `offsetPages` reads a list that changes meanwhile. */
const readsMax = 3;

/**
 * Collects a list that the cloud returns in pages by offset or number, together with the number of
 * entries of the whole list. An entry that goes between two pages moves the later ones forward, and
 * one of them is on no page: the list is then read again, and `unavailable` where it changes each
 * time. A deletion together with a creation is not seen: look a machine up before it is gone.
 */
export function offsetPages<T>(
  id: (entry: T) => string,
  page: (offset: number) => { entries: readonly T[]; total: number },
): T[] {
  for (let read = 0; read < readsMax; read++) {
    const all = readByOffset(page);
    if (all && new Set(all.map(id)).size === all.length) return all;
  }
  throw unavailable(`the list changed between two pages, ${readsMax} times`);
}

/** Reads a list once; undefined where it changed meanwhile. */
function readByOffset<T>(page: (offset: number) => { entries: readonly T[]; total: number }): T[] | undefined {
  const { entries, total } = page(0);
  const all = [...entries];
  for (let count = 1; count < pagesMax; count++) {
    if (all.length >= total) return all.length === total ? all : undefined;
    const next = page(all.length);
    if (next.total !== total || next.entries.length === 0) return undefined;
    for (const entry of next.entries) all.push(entry);
  }
  throw unavailable(`the list does not end after ${pagesMax} pages`);
}

/**
 * Throws `internal` unless the value is a list of objects in which each of these members is a
 * string that is not empty. An ID that is a number, or a name that is absent, would not be found,
 * and a machine that is not found deletes its node.
 */
export function requireTexts<K extends string>(
  value: unknown,
  what: string,
  ...keys: K[]
): asserts value is Record<K, string>[] {
  if (!Array.isArray(value)) throw internal(`${what}: not a list`);
  for (const [index, entry] of (value as unknown[]).entries()) {
    if (!isObject(entry)) throw internal(`${what}[${index}]: not an object`);
    for (const key of keys) {
      if (typeof entry[key] !== "string" || entry[key] === "") {
        throw internal(`${what}[${index}].${key}: not a text with at least one character`);
      }
    }
  }
}
