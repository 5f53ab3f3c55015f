// Reads an answer that has no end, and requests it again with growing pauses when it
// breaks off. It uses fetch, since EventSource can't send a bearer token.

import { backoff } from '../backoff.ts';
import { pause, webPlatform, type Platform } from '../platform.ts';
import { ApiError, Unwanted } from '../session/http.ts';

const openMs = 10_000;
// Streams end with their grant now and then. A shorter outage is not reported.
export const overdueMs = 1_500;
// A stream that lasted so long counts as a success.
const heldMs = 5_000;

export interface StreamHooks {
  silenceMs: number; // a stream silent for this long is lost
  // open asks for the answer. freshGrant: the last grant was no good.
  open(signal: AbortSignal, freshGrant: boolean): Promise<Response>;
  // begin returns what takes the bytes of one answer.
  begin(answer: Response): (bytes: Uint8Array<ArrayBuffer>) => void;
  connected(connected: boolean): void; // changes that lasted
  over(error: ApiError): void; // there is no use in trying again
}

export class Stream {
  #stop = new AbortController();
  #overdue: unknown;
  #refused = false; // a grant, once
  #wake: (() => void) | undefined; // ends the pause

  constructor(private readonly hooks: StreamHooks, private readonly platform: Platform = webPlatform) {}

  start(): void {
    this.#lost();
    void this.#run(this.#stop.signal);
  }

  stop(): void {
    this.platform.clock.clearTimeout(this.#overdue);
    this.#stop.abort();
  }

  // now ends a pause between two attempts: what was in the way may be gone.
  now(): void {
    this.#wake?.();
  }

  async #run(stop: AbortSignal): Promise<void> {
    for (let failures = 0; !stop.aborted; ) {
      const began = this.platform.clock.now();
      try {
        await this.#once(stop);
      } catch (error) {
        if (stop.aborted) return;
        if (error instanceof ApiError && !error.passing && (error.status !== 401 || this.#refused)) return this.#give(error);
        this.#refused = error instanceof ApiError && error.status === 401;
      }
      if (stop.aborted) return;
      this.#lost();
      failures = this.platform.clock.now() - began >= heldMs ? 0 : failures + 1;
      await Promise.race([pause(this.platform.clock, backoff(failures, this.platform.random())), new Promise<void>((resolve) => (this.#wake = resolve))]);
    }
  }

  #give(error: ApiError): void {
    this.platform.clock.clearTimeout(this.#overdue);
    this.hooks.over(error);
  }

  // once reads one answer to its end.
  async #once(stop: AbortSignal): Promise<void> {
    const ended = new AbortController();
    const end = () => ended.abort();
    const leave = () => ended.abort(new Unwanted());
    stop.addEventListener('abort', leave);
    let timer = this.platform.clock.setTimeout(end, openMs);
    try {
      const answer = await this.hooks.open(ended.signal, this.#refused);
      const reader = answer.body?.getReader();
      if (reader === undefined) return;
      this.#found();
      const take = this.hooks.begin(answer);
      for (;;) {
        this.platform.clock.clearTimeout(timer);
        timer = this.platform.clock.setTimeout(end, this.hooks.silenceMs);
        const { value, done } = await reader.read();
        if (done || stop.aborted) return;
        take(value);
      }
    } finally {
      this.platform.clock.clearTimeout(timer);
      stop.removeEventListener('abort', leave);
      end(); // a stream that sent nonsense
    }
  }

  #found(): void {
    this.platform.clock.clearTimeout(this.#overdue);
    this.#overdue = undefined;
    this.#refused = false;
    this.hooks.connected(true);
  }

  #lost(): void {
    this.#overdue ??= this.platform.clock.setTimeout(() => this.hooks.connected(false), overdueMs);
  }
}
