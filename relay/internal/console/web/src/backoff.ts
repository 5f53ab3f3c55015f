// How long to wait before the next attempt: exponential with full jitter, so
// that the browsers of a relay that restarts don't come back as one.

export const baseMs = 500;
export const capMs = 10_000;

// backoff returns milliseconds for the attempt that follows failures failures.
// random is in [0, 1).
export function backoff(failures: number, random: number): number {
  return Math.floor(random * Math.min(capMs, baseMs * 2 ** Math.min(failures, 16)));
}
