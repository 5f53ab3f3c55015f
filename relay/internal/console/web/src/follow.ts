// Follows a stream of server-sent events by fetch, since a grant is a bearer:
// resumes by the id of the last event, and comes back with growing pauses.

import { ApiError } from './api.ts';
import { backoff } from './backoff.ts';
import { EventParser, type ServerEvent } from './sse.ts';

// The relay sends a comment every 15 s.
const silenceMs = 40_000;
const openMs = 10_000;
// A grant ends a stream now and then: nobody needs to hear of that.
export const overdueMs = 1_500;
// A stream that held for so long was no failure.
const heldMs = 5_000;

export interface FollowHooks {
  // open asks for the stream from since on, '' for its start.
  // freshGrant: the last one was no good.
  open(since: string, signal: AbortSignal, freshGrant: boolean): Promise<Response>;
  event(event: ServerEvent): void;
  connected(connected: boolean): void; // changes that lasted
  over(error: ApiError): void; // there is no use in trying again
}

export class Follow {
  #since = '';
  #stop = new AbortController();
  #overdue: ReturnType<typeof setTimeout> | undefined;
  #refused = false; // a grant, once

  constructor(private readonly hooks: FollowHooks) {}

  start(): void {
    this.#lost();
    void this.#run(this.#stop.signal);
  }

  stop(): void {
    clearTimeout(this.#overdue);
    this.#stop.abort();
  }

  async #run(stop: AbortSignal): Promise<void> {
    for (let failures = 0; !stop.aborted; ) {
      const began = performance.now();
      try {
        await this.#once(stop);
      } catch (error) {
        if (stop.aborted) return;
        if (error instanceof ApiError && !error.passing && (error.status !== 401 || this.#refused)) return this.#give(error);
        this.#refused = error instanceof ApiError && error.status === 401;
      }
      this.#lost();
      failures = performance.now() - began >= heldMs ? 0 : failures + 1;
      await new Promise((resolve) => setTimeout(resolve, backoff(failures, Math.random())));
    }
  }

  #give(error: ApiError): void {
    clearTimeout(this.#overdue);
    this.hooks.over(error);
  }

  // once reads one stream to its end.
  async #once(stop: AbortSignal): Promise<void> {
    const ended = new AbortController();
    const end = () => ended.abort();
    stop.addEventListener('abort', end);
    let timer = setTimeout(end, openMs);
    try {
      const answer = await this.hooks.open(this.#since, ended.signal, this.#refused);
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
      if (reader === undefined) return;
      this.#found();
      const parser = new EventParser();
      for (;;) {
        clearTimeout(timer);
        timer = setTimeout(end, silenceMs);
        const { value, done } = await reader.read();
        if (done) return;
        for (const event of parser.push(value)) this.#take(event);
      }
    } finally {
      clearTimeout(timer);
      stop.removeEventListener('abort', end);
      end(); // a stream that sent nonsense
    }
  }

  #take(event: ServerEvent): void {
    this.hooks.event(event);
    if (event.id !== '') this.#since = event.id;
  }

  #found(): void {
    clearTimeout(this.#overdue);
    this.#overdue = undefined;
    this.#refused = false;
    this.hooks.connected(true);
  }

  #lost(): void {
    this.#overdue ??= setTimeout(() => this.hooks.connected(false), overdueMs);
  }
}
