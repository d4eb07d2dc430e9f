import type * as contract from "./contract.js";

/**
 * What a provider reaches outside of itself: in the sandbox Skysail's host, in a test `Host` of
 * `@skysail/provider/testing`.
 */
export interface Host {
  config: contract.config.Functions;
  http: contract.http.Functions;
  log: contract.log.Functions;
  cache: contract.cache.Functions;
  events: contract.events.Functions;
  /** Random bytes. */
  random(bytes: number): Uint8Array;
}

let current: Host | null = null;

/** Installs a host; null for none. The component and the tests call it. */
export function useHost(host: Host | null): void {
  current = host;
}

let absence =
  "this function calls Skysail's host, which exists only in the sandbox: a native test installs one with new Host() of @skysail/provider/testing";

/** Says that the program is a component: until it has a host, the modules are being loaded. */
export function isComponent(): void {
  absence =
    "the top level of a module runs once, when the component is built: Skysail's host, random numbers and the log exist only in calls";
}

/** The host of this call. */
export function host(): Host {
  if (!current) throw new Error(absence);
  return current;
}

/** The cloud-config of this call. */
export const config = (): string => host().config.text();

/**
 * Emits an Event about the Service of this call; in a call about nodes or
 * routes, about the cluster.
 */
export function event(reason: string, message: string): void {
  host().events.emit("normal", wellFormed(reason), wellFormed(message));
}

/** Emits an Event of type Warning. */
export function warningEvent(reason: string, message: string): void {
  host().events.emit("warning", wellFormed(reason), wellFormed(message));
}

/**
 * A text that the host accepts: a string of JavaScript may have halves of surrogate
 * pairs, and the call would trap.
 */
export const wellFormed = (text: string): string =>
  // ES2024 has a function for it, as QuickJS.
  (text as string & { toWellFormed?: () => string }).toWellFormed?.() ?? text.replace(/\p{Surrogate}/gu, "\ufffd");

const level =
  (name: contract.log.Level) =>
  (message: string, fields: Record<string, unknown> = {}) => {
    const log = host().log;
    if (!log.enabled(name)) return;
    log.write(
      name,
      wellFormed(message),
      Object.entries(fields).map(([key, value]) => [wellFormed(key), wellFormed(shown(value))]),
    );
  };

/** A value as text, for people. */
export function shown(value: unknown): string {
  if (typeof value === "string") return value;
  if (value instanceof Error) return value.stack ? `${value}\n${value.stack}` : String(value);
  if (typeof value !== "object" || value === null) return String(value);
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}

/** The host's log. */
export const log = {
  trace: level("trace"),
  debug: level("debug"),
  info: level("info"),
  warn: level("warn"),
  error: level("error"),
};

/** Small values that outlive the call, as JSON. The host may drop one at any time. */
export const cache = {
  get<T>(key: string): T | undefined {
    return parsed<T>(host().cache.get(wellFormed(key)));
  },
  /** false where the host does not keep the value. */
  set(key: string, value: unknown, ttlMs: number): boolean {
    return host().cache.set(wellFormed(key), encoded(value), milliseconds(ttlMs));
  },
  delete(key: string): void {
    host().cache.delete(wellFormed(key));
  },
  /** The value of this key, which `load` makes where the host has none. */
  getOr<T>(key: string, ttlMs: number, load: () => T): T {
    const found = cache.get<T>(key);
    if (found !== undefined) return found;
    const value = load();
    cache.set(key, value, ttlMs);
    return value;
  },
  /**
   * Changes a value that calls at the same time may change, too; undefined where the host did not
   * keep the change. `change` gets undefined where there is no value.
   */
  update<T>(key: string, ttlMs: number, change: (value: T | undefined) => T): T | undefined {
    for (let tries = 0; tries < 16; tries++) {
      const before = host().cache.get(wellFormed(key));
      const after = change(parsed<T>(before));
      if (host().cache.compareAndSet(wellFormed(key), before, encoded(after), milliseconds(ttlMs))) return after;
    }
    return undefined;
  },
};

/** A duration that the host accepts. */
export const milliseconds = (value: number, max = Number.MAX_SAFE_INTEGER): number =>
  Number.isNaN(value) ? 0 : Math.min(Math.max(Math.round(value), 0), max);

const encoded = (value: unknown) => encode(JSON.stringify(value));

/** What `set` kept; undefined for bytes that are not JSON. */
function parsed<T>(bytes: Uint8Array | null): T | undefined {
  if (!bytes) return undefined;
  try {
    return JSON.parse(decode(bytes) ?? "") as T;
  } catch {
    return undefined;
  }
}

// QuickJS has neither TextEncoder nor TextDecoder. Its built-in functions need 1 % of the time of a
// loop in JavaScript.
interface Base64 {
  toBase64(): string;
}
const { fromBase64 } = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array };

const chunk = 4096;

/** Whether all bytes are ASCII. */
function isASCII(bytes: Uint8Array): boolean {
  const signed = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let start = 0; start < signed.length; start += chunk) {
    if (Math.min.apply(null, signed.subarray(start, start + chunk) as unknown as number[]) < 0) return false;
  }
  return true;
}

/** UTF-8. */
export function encode(text: string): Uint8Array {
  if (!fromBase64) return new TextEncoder().encode(text);
  try {
    const bytes = fromBase64(btoa(text));
    if (isASCII(bytes)) return bytes;
  } catch {
    // A character beyond Latin-1.
  }
  return fromBase64(btoa(unescape(encodeURIComponent(wellFormed(text)))));
}

/** The text of UTF-8; undefined for other bytes. */
export function decode(bytes: Uint8Array): string | undefined {
  try {
    if (!fromBase64) return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    const latin = atob((bytes as unknown as Base64).toBase64());
    return isASCII(bytes) ? latin : decodeURIComponent(escape(latin));
  } catch {
    return undefined;
  }
}
