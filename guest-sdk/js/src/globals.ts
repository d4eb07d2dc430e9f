/**
 * What programs expect of any engine and QuickJS has not: `console`, `crypto` and random numbers
 * that differ from call to call. The component is a snapshot, which would repeat the engine's own.
 */
import { host, isComponent, log, shown } from "./host.js";

const line =
  (level: keyof typeof log) =>
  (...values: unknown[]): void =>
    log[level](values.map(shown).join(" "));

const console = {
  debug: line("debug"),
  log: line("info"),
  info: line("info"),
  warn: line("warn"),
  error: line("error"),
  trace: line("trace"),
};

function random(): number {
  const bytes = host().random(7);
  // 53 bits, as many as a number has.
  let value = (bytes[0] ?? 0) & 0x1f;
  for (let index = 1; index < 7; index++) value = value * 256 + (bytes[index] ?? 0);
  return value / 2 ** 53;
}

const quota = 65_536;

const crypto = {
  getRandomValues<T extends ArrayBufferView>(into: T): T {
    if (into.byteLength > quota) throw new RangeError(`crypto.getRandomValues fills at most ${quota} bytes`);
    const bytes = host().random(into.byteLength);
    new Uint8Array(into.buffer, into.byteOffset, into.byteLength).set(bytes);
    return into;
  },
  randomUUID(): string {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
    bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
  },
};

isComponent();
Object.assign(globalThis, { console, crypto });
Math.random = random;
