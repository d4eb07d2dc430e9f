import ipaddr from "ipaddr.js";
import { invalid, type ProviderError } from "./errors.js";
import type { IPFamily, NodeSet, Service } from "./types.js";

const nameMax = 32;

/** Upstream's name of a Service's load balancer. */
export const defaultLoadBalancerName = (service: Service): string =>
  `a${service.uid.replaceAll("-", "")}`.slice(0, nameMax);

/** `namespace/name`. */
export const serviceKey = (service: Service): string => `${service.namespace}/${service.name}`;

/** The IP families of the Service; IPv4 where it names none. */
export const families = (service: Service): IPFamily[] => (service.ipFamilies.length ? service.ipFamilies : ["IPv4"]);

/** A source range: network address and prefix length. */
export interface SourceRange {
  family: IPFamily;
  address: string;
  bits: number;
}

/**
 * The source ranges as a sorted set; every address of the Service's families where
 * the Service names no range.
 */
export function allowedSources(service: Service): SourceRange[] {
  const texts = service.sourceRanges.map((text) => text.trim());
  const everything = families(service).map((family) => (family === "IPv6" ? "::/0" : "0.0.0.0/0"));
  const ranges = new Map<string, { range: SourceRange; bytes: number[] }>();
  for (const text of texts.length ? texts : everything) {
    const { range, bytes } = masked(text);
    ranges.set(`${range.address}/${range.bits}`, { range, bytes });
  }
  return [...ranges.values()].sort(inOrder).map(({ range }) => range);
}

function masked(text: string): { range: SourceRange; bytes: number[] } {
  // ipaddr.js reads more than CIDRs, such as 10.1/8 and octal numbers.
  const [, address4 = ""] = /^([\d.]+)\/\d{1,2}$/.exec(text) ?? [];
  const hasForm = address4 ? isIPv4(address4) : /^[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\/\d{1,3}$/.test(text);
  if (!hasForm || !ipaddr.isValidCIDR(text)) {
    throw invalid(`${JSON.stringify(text)} is not a CIDR such as 10.0.0.0/8`);
  }
  const [address, bits] = ipaddr.parseCIDR(text);
  const bytes = address.toByteArray();
  for (let index = 0; index < bytes.length; index++) {
    const kept = Math.min(Math.max(bits - index * 8, 0), 8);
    bytes[index] = (bytes[index] ?? 0) & (0xff00 >> kept) & 0xff;
  }
  const family = address.kind() === "ipv4" ? "IPv4" : "IPv6";
  return { range: { family, address: ipaddr.fromByteArray(bytes).toString(), bits }, bytes };
}

function inOrder(one: { range: SourceRange; bytes: number[] }, other: { range: SourceRange; bytes: number[] }): number {
  if (one.bytes.length !== other.bytes.length) return one.bytes.length - other.bytes.length;
  for (const [index, byte] of one.bytes.entries()) {
    const difference = byte - (other.bytes[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return one.range.bits - other.range.bits;
}

/** The first internal IP of this family of each node that has one. */
export function internalIPs(nodes: NodeSet, family: IPFamily): string[] {
  const isOf = family === "IPv4" ? isIPv4 : isIPv6;
  const found: string[] = [];
  for (const addresses of nodes.addresses("InternalIP")) {
    const first = addresses.find(isOf);
    if (first !== undefined) found.push(first);
  }
  return found;
}

/** Whether the text is an IPv4 address in four decimal parts. */
export const isIPv4 = (text: string): boolean => /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/.test(text);

/** Whether the text, an address that Kubernetes has accepted, is of IPv6. */
export const isIPv6 = (text: string): boolean => text.includes(":");

/**
 * What follows `scheme://`; for another provider ID the error `invalid`,
 * which is about its node alone.
 */
export function parseProviderId(scheme: string, id: string): string | ProviderError {
  const start = `${scheme}://`;
  if (id.startsWith(start) && id.length > start.length) return id.slice(start.length);
  return invalid(`provider ID ${JSON.stringify(id)} does not have the form ${scheme}://<id>`);
}
