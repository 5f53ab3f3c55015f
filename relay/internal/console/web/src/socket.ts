// Carries out what connection.ts decides: asks for tickets, opens and closes
// the WebSocket, keeps the one timer.

import type { Ticket } from './api.ts';
import { ApiError } from './api.ts';
import { initial, step, type Connection, type Effect, type Event } from './connection.ts';
import { decode, type ClientMessage, type ServerMessage } from './protocol.ts';
import { Upstream } from './upstream.ts';

// Intermediaries close a connection that says nothing for a minute.
const pingMs = 25_000;

export interface Hooks {
  prepare(freshGrant: boolean): Promise<Ticket>;
  changed(state: Connection): void;
  message(message: ServerMessage): void;
  clear(): void;
  head(offset: number): void;
  resize(cols: number, rows: number): void;
  write(bytes: Uint8Array, offset: number | null): void;
}

export class Socket {
  #state = initial();
  #socket: WebSocket | undefined;
  #upstream: Upstream | undefined;
  #timer: number | undefined;
  #ping: number | undefined;
  #attempt = 0; // answers to earlier attempts are void

  constructor(private readonly hooks: Hooks) {}

  get state(): Connection {
    return this.#state;
  }

  start = () => this.#handle({ type: 'start' });
  retry = () => this.#handle({ type: 'retry' });
  online = () => this.#handle({ type: 'online' });
  overrun = () => this.#handle({ type: 'overrun' });
  drained = () => this.#handle({ type: 'drained' });
  stop = () => this.#handle({ type: 'stop' });

  // attached says that what is sent now reaches the relay.
  get attached(): boolean {
    return this.#state.phase.name === 'attached';
  }

  send(message: ClientMessage): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  // input says whether data was taken; it is refused whole.
  input(data: Uint8Array<ArrayBuffer>): boolean {
    return this.attached && this.#upstream !== undefined && this.#upstream.push(data);
  }

  // interrupt drops input that hasn't left yet.
  interrupt(): number {
    return this.#upstream?.interrupt() ?? 0;
  }

  get inputPending(): number {
    return this.#upstream?.pending ?? 0;
  }

  #handle(event: Event, bytes?: Uint8Array): void {
    const [next, effects] = step(this.#state, event, { now: Date.now(), random: Math.random() });
    const changed = next.phase !== this.#state.phase || next.waiting !== this.#state.waiting || next.exit !== this.#state.exit;
    this.#state = next;
    for (const effect of effects) this.#run(effect, bytes);
    if (event.type === 'frame') this.hooks.message(event.message);
    if (changed) this.hooks.changed(next);
  }

  #run(effect: Effect, bytes?: Uint8Array): void {
    switch (effect.type) {
      case 'prepare':
        void this.#prepare(effect.freshGrant);
        break;
      case 'open':
        this.#open(effect.url, effect.ticket);
        break;
      case 'hang-up':
        this.#hangUp();
        break;
      case 'timer':
      case 'no-timer':
        clearTimeout(this.#timer);
        if (effect.type === 'timer') this.#timer = window.setTimeout(() => this.#handle({ type: 'timer' }), effect.ms);
        break;
      case 'clear':
        this.hooks.clear();
        break;
      case 'head':
        this.hooks.head(effect.offset);
        break;
      case 'resize':
        this.hooks.resize(effect.cols, effect.rows);
        break;
      case 'write':
        if (bytes !== undefined) this.hooks.write(bytes, effect.offset);
        break;
    }
  }

  async #prepare(freshGrant: boolean): Promise<void> {
    const attempt = ++this.#attempt;
    let event: Event;
    try {
      event = { type: 'prepared', ...(await this.hooks.prepare(freshGrant)) };
    } catch (error) {
      event = { type: 'refused', status: error instanceof ApiError ? error.status : 0 };
    }
    if (attempt === this.#attempt) this.#handle(event);
  }

  #open(url: string, ticket: string): void {
    const socket = new WebSocket(url, [`ticket.${ticket}`]);
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    this.#upstream = new Upstream(socket);
    // Every handler checks that the socket is still the one in use.
    socket.onopen = () => {
      if (socket !== this.#socket) return;
      this.#ping = window.setInterval(() => this.send({ type: 'ping' }), pingMs);
      this.#handle({ type: 'opened' });
    };
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (socket !== this.#socket) return;
      if (typeof data !== 'string') {
        this.#handle({ type: 'bytes', length: data.byteLength }, new Uint8Array(data));
        return;
      }
      const message = decode(data);
      if (message !== undefined) this.#handle({ type: 'frame', message });
    };
    socket.onclose = ({ code }) => {
      if (socket !== this.#socket) return;
      this.#hangUp();
      this.#handle({ type: 'closed', code });
    };
  }

  #hangUp(): void {
    this.#attempt++;
    clearInterval(this.#ping);
    this.#upstream?.clear();
    const socket = this.#socket;
    this.#socket = undefined;
    this.#upstream = undefined;
    if (socket !== undefined && socket.readyState < WebSocket.CLOSING) socket.close(1000);
  }
}
