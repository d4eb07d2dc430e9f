/**
 * What a component has beside the language: for the `types` or `include` of a
 * provider's tsconfig.json.
 */
declare var console: Record<"debug" | "log" | "info" | "warn" | "error" | "trace", (...values: unknown[]) => void>;
declare var crypto: { getRandomValues<T extends ArrayBufferView>(into: T): T; randomUUID(): string };
declare var performance: { now(): number };
declare function atob(text: string): string;
declare function btoa(text: string): string;
