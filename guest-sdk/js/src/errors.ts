/** Errors of the contract; `wit/v0.1.0/types.wit` says how the host reacts to each code. */
export type Code =
  | "not-found"
  | "implemented-elsewhere"
  | "unsupported"
  | "invalid"
  | "denied"
  | "exhausted"
  | "retry-after"
  | "unavailable"
  | "internal";

/** An error that a provider reports. Any other exception is a bug and ends the call with a trap. */
export class ProviderError extends Error {
  override readonly name = "ProviderError";

  /** @param afterMs the wait of `retry-after`, in milliseconds; 0 lets the host choose */
  constructor(
    readonly code: Code,
    message: string,
    readonly afterMs = 0,
  ) {
    super(message);
  }
}

/** The object does not exist. About a machine, it deletes the node. */
export const notFound = (message: string) => new ProviderError("not-found", message);
/** Another program serves this Service. */
export const implementedElsewhere = (message: string) => new ProviderError("implemented-elsewhere", message);
/** The cloud cannot do it. */
export const unsupported = (message: string) => new ProviderError("unsupported", message);
/** The object or the cloud-config has to be changed first. */
export const invalid = (message: string) => new ProviderError("invalid", message);
/** The cloud refuses the credential or the rights. */
export const denied = (message: string) => new ProviderError("denied", message);
/** A quota is used up. */
export const exhausted = (message: string) => new ProviderError("exhausted", message);
/** The cloud is busy, or still at work: the host calls again after a wait in milliseconds. */
export const retryAfter = (afterMs: number, message: string) => new ProviderError("retry-after", message, afterMs);
/** The cloud is unreachable, slow or broken. */
export const unavailable = (message: string) => new ProviderError("unavailable", message);
/** The cloud answered what the provider does not understand. */
export const internal = (message: string) => new ProviderError("internal", message);

/** Whether the error says that the object does not exist. */
export const isNotFound = (error: unknown): boolean => error instanceof ProviderError && error.code === "not-found";

const rank = (error: ProviderError) => {
  const order: Partial<Record<Code, number>> = { "not-found": 0, unavailable: 1, "retry-after": 2 };
  return order[error.code] ?? 3;
};

/**
 * The worst of several errors. An error that no retry repairs is worse than the longest wait, and a
 * wait is worse than an outage. The result is `not-found` only where all errors are, because it may
 * delete a node.
 */
export function worst(errors: readonly ProviderError[]): ProviderError | undefined {
  let found: ProviderError | undefined;
  for (const error of errors) {
    const difference = found ? rank(error) - rank(found) : 1;
    if (difference > 0 || (difference === 0 && found && error.afterMs > found.afterMs)) found = error;
  }
  return found;
}
