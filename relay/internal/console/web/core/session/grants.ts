// The one grant under which all of a session's sockets and requests are made,
// renewed before it expires.

import type { Clock } from '../platform.ts';

const retryMs = 5_000;

export interface Grant {
  grant: string;
  lifetimeMs: number;
}

export class Grants {
  #grant: { value: string; expires: number } | undefined;
  #pending: Promise<string> | undefined;
  #timer: unknown;

  // renewed is called with every grant but the first.
  constructor(
    private readonly obtain: () => Promise<Grant>,
    private readonly renewed: (grant: string) => void,
    private readonly clock: Omit<Clock, 'date'>,
  ) {}

  // current returns a grant that hasn't expired; fresh insists on a new one.
  // Callers at the same time share one request.
  current(fresh = false): Promise<string> {
    if (!fresh && this.#grant !== undefined && this.clock.now() < this.#grant.expires) {
      return Promise.resolve(this.#grant.value);
    }
    this.#pending ??= this.#renew().finally(() => (this.#pending = undefined));
    return this.#pending;
  }

  async #renew(): Promise<string> {
    const first = this.#grant === undefined;
    const asked = this.clock.now();
    const { grant, lifetimeMs } = await this.obtain();
    this.#grant = { value: grant, expires: asked + lifetimeMs };
    this.#schedule(Math.max(lifetimeMs * 0.8, 1_000));
    if (!first) this.renewed(grant);
    return grant;
  }

  // A renewal that fails is tried again until the grant has expired. After that the
  // next request asks for a grant, and tells what is wrong.
  #schedule(ms: number): void {
    this.clock.clearTimeout(this.#timer);
    this.#timer = this.clock.setTimeout(() => {
      this.current(true).catch(() => {
        if (this.#grant !== undefined && this.clock.now() < this.#grant.expires) this.#schedule(retryMs);
      });
    }, ms);
  }
}
