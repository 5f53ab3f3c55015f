// How long to wait before the next attempt: exponential with jitter, so that
// the browsers of a relay that restarts don't come back as one. The first
// attempt is quick: a relay that was only restarted is back by then.

export const leastMs = 100;
export const firstMs = 300;
export const capMs = 5_000;

// backoff returns milliseconds for the attempt that follows failures failures.
// random is in [0, 1).
export function backoff(failures: number, random: number): number {
  const most = Math.min(capMs, firstMs * 2 ** Math.min(failures, 16));
  return Math.floor(leastMs + random * (most - leastMs));
}
