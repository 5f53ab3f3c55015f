// Follows a stream of server-sent events, and resumes it by the id of the last
// event.

import { webPlatform, type Platform } from '../platform.ts';
import type { ApiError } from '../session/http.ts';
import { EventParser, type ServerEvent } from './sse.ts';
import { Stream } from './stream.ts';

// The relay sends a comment every 15 s.
const silenceMs = 40_000;

export interface FollowHooks {
  // open asks for the stream from since on, '' for its start.
  // freshGrant: the last one was no good.
  open(since: string, signal: AbortSignal, freshGrant: boolean): Promise<Response>;
  event(event: ServerEvent): void;
  connected(connected: boolean): void; // changes that lasted
  over(error: ApiError): void; // there is no use in trying again
}

export class Follow {
  readonly #stream: Stream;
  #since = '';

  constructor(private readonly hooks: FollowHooks, platform: Platform = webPlatform) {
    this.#stream = new Stream({
      silenceMs,
      open: (signal, freshGrant) => hooks.open(this.#since, signal, freshGrant),
      begin: () => this.#begin(),
      connected: (connected) => hooks.connected(connected),
      over: (error) => hooks.over(error),
    }, platform);
  }

  start(): void {
    this.#stream.start();
  }

  stop(): void {
    this.#stream.stop();
  }

  // now ends a pause between two attempts.
  now(): void {
    this.#stream.now();
  }

  #begin(): (bytes: Uint8Array) => void {
    const parser = new EventParser();
    const decoder = new TextDecoder();
    return (bytes) => {
      for (const event of parser.push(decoder.decode(bytes, { stream: true }))) {
        this.hooks.event(event);
        if (event.id !== '') this.#since = event.id;
      }
    };
  }
}
