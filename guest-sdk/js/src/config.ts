import { invalid } from "./errors.js";
import { config } from "./host.js";
import type { Problem } from "./types.js";

/** What `parse` makes of a cloud-config. */
export interface Checked<T> {
  value: T;
  problems: Problem[];
}

/**
 * Parses the cloud-config of this call by the function that `identity.checkConfig` calls, too.
 * Throws the first fatal problem; warnings do not prevent a call.
 */
export function loadConfig<T>(parse: (text: string) => Checked<T>): T {
  const { value, problems } = parse(config());
  const fatal = problems.find(isFatal);
  if (fatal) throw invalid(`cloud-config, line ${fatal.line}, ${fatal.key}: ${fatal.message}`);
  return value;
}

/** Whether one of the problems refuses the cloud-config. */
export const hasFatal = (problems: readonly Problem[]) => problems.some(isFatal);

const isFatal = ({ severity }: Problem) => severity === "fatal";

interface Entry {
  line: number;
  section: string;
  key: string;
  value: string;
  isAsked: boolean;
}

const path = (section: string, key: string) => (section ? `${section}.${key}` : key);
const isComment = (text: string) => text.startsWith("#") || text.startsWith(";");
const same = (one: string, other: string) => one.toLowerCase() === other.toLowerCase();

/**
 * A cloud-config of sections, keys and values, the format of most clouds. Sections and keys
 * are compared without case.
 */
export class INI {
  private readonly entries: Entry[] = [];
  private readonly found: Problem[] = [];

  constructor(text: string) {
    let section = "";
    for (const [index, raw] of text.split("\n").entries()) {
      const line = raw.trim();
      if (line === "" || isComment(line)) continue;
      if (line.startsWith("[")) {
        section = this.section(index + 1, line) ?? section;
      } else {
        this.entry(index + 1, section, line);
      }
    }
  }

  private section(number: number, line: string): string | undefined {
    const end = line.indexOf("]");
    const after = line.slice(end + 1).trim();
    if (end >= 0 && (after === "" || isComment(after))) return line.slice(1, end).trim();
    this.problem("fatal", number, "", "a section ends with ]");
    return undefined;
  }

  private entry(number: number, section: string, line: string): void {
    const assigns = line.indexOf("=");
    if (assigns < 0) {
      this.problem("fatal", number, line, "expected key = value");
      return;
    }
    const key = line.slice(0, assigns).trim();
    const value = iniValue(line.slice(assigns + 1).trim());
    if (typeof value === "string") this.entries.push({ line: number, section, key, value, isAsked: false });
    else this.problem("fatal", number, path(section, key), value.error);
  }

  private problem(severity: Problem["severity"], line: number, key: string, message: string): void {
    this.found.push({ severity, line, key, message });
  }

  private of(section: string, key: string): Entry[] {
    return this.entries.filter((entry) => same(entry.section, section) && same(entry.key, key));
  }

  /** A value; undefined where the key is absent. A second value is a problem. */
  optional(section: string, key: string): string | undefined {
    const [first, ...others] = this.of(section, key);
    if (first) first.isAsked = true;
    for (const other of others) {
      other.isAsked = true;
      this.problem("fatal", other.line, path(section, key), "stands here a second time");
    }
    return first?.value;
  }

  /** A value; an absent or empty one is a problem. */
  required(section: string, key: string): string {
    const value = this.optional(section, key) ?? "";
    if (value === "") this.refuse(section, key, "is required");
    return value;
  }

  /** All values of a key that may stand several times, in their order. */
  list(section: string, key: string): string[] {
    return this.of(section, key).map((entry) => {
      entry.isAsked = true;
      return entry.value;
    });
  }

  /**
   * A value as `parse` reads it; undefined where the key is absent, and where `parse` throws,
   * which is a problem.
   */
  read<T>(section: string, key: string, parse: (text: string) => T): T | undefined {
    const text = this.optional(section, key);
    if (text === undefined) return undefined;
    try {
      return parse(text);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.refuse(section, key, `${JSON.stringify(text)}: ${why}`);
      return undefined;
    }
  }

  /** Adds a fatal problem of a key. */
  refuse(section: string, key: string, message: string): void {
    this.problem("fatal", this.of(section, key)[0]?.line ?? 0, path(section, key), message);
  }

  /** Adds a warning about a key. */
  warn(section: string, key: string, message: string): void {
    this.problem("warning", this.of(section, key)[0]?.line ?? 0, path(section, key), message);
  }

  /** All problems by line, with one for each key that nobody asked for. */
  problems(): Problem[] {
    const unknown = this.entries
      .filter((entry) => !entry.isAsked)
      .map(({ line, section, key }): Problem => ({
        severity: "fatal",
        line,
        key: path(section, key),
        message: "is not a key of this provider",
      }));
    return [...this.found, ...unknown].sort((one, other) => one.line - other.line);
  }
}

/** An unquoted value ends at a comment after a space; a quoted one has \" and \\. */
function iniValue(text: string): string | { error: string } {
  if (!text.startsWith('"')) {
    return text.replace(/(^|[ \t])[#;].*$/, "").trimEnd();
  }
  const quoted = /^"((?:[^"\\]|\\.)*)"(.*)$/.exec(text);
  if (!quoted) return { error: "the quote is not closed" };
  const [, inner = "", rest = ""] = quoted;
  if (rest.trim() !== "" && !isComment(rest.trim())) return { error: "text behind the closing quote" };
  if (/\\[^"\\]/.test(inner.replaceAll("\\\\", ""))) return { error: 'after \\ only " and \\ may stand' };
  return inner.replace(/\\(.)/g, "$1");
}
