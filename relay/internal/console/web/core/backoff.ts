// How long to wait before the next attempt: exponential with jitter, so that
// the browsers of a relay that restarts don't come back as one. The first
// attempt is quick: a relay that was only restarted is back by then. So are the
// next ones, for as long as control is kept for who is away (10 s).

export const leastMs = 100;
export const firstMs = 300;
export const quickMs = 1_000;
export const quickAttempts = 16; // half a second apart
export const capMs = 5_000;

// backoff returns milliseconds for the attempt that follows failures failures.
// random is in [0, 1).
export function backoff(failures: number, random: number): number {
  const most = Math.min(failures < quickAttempts ? quickMs : capMs, firstMs * 2 ** Math.min(failures, 16));
  return Math.floor(leastMs + random * (most - leastMs));
}
