// Carries out what connection.ts decides: asks for tickets, opens and closes
// the WebSocket, keeps the timers; sends what outbox.ts and acks.ts say.

import type { Clock, Platform } from '../platform.ts';
import { decode, encodeInput, momentary, subprotocol, type ClientMessage, type LogPart, type ServerMessage } from '../protocol.ts';
import { ApiError } from '../session/http.ts';
import { originOf } from '../session/origins.ts';
import type { Session } from '../session/session.ts';
import { Acks } from './acks.ts';
import { initial, step, type Connection, type Effect, type Event } from './connection.ts';
import { Outbox } from './outbox.ts';
import { Pulse, type Patience } from './pulse.ts';

// Output takes what a terminal shows, in the order of its byte stream.
export interface Output {
  // write shows bytes. Those before the head are history, and so is a keyframe,
  // whose offset is null. rendered is to be called when all are on the screen:
  // the relay sends no more than 256 KiB ahead of that.
  write(bytes: Uint8Array, offset: number | null, rendered: () => void): void;
  clear(): void; // what follows doesn't continue the screen
  resize(cols: number, rows: number): void;
  head?(offset: number): void; // bytes before it are history
  unseen?(part: LogPart, skipped: boolean): void; // output that the screen will not get
}

export interface SocketOptions {
  id: string; // of the terminal
  followsSize: boolean; // never give the terminal the size of this window
}

export interface SocketHooks {
  changed(state: Connection): void;
  message(message: ServerMessage): void;
  dropped(bytes: number, reason: string): void; // typed, sent, and refused for good
  patience(): Patience; // with a relay that says nothing
}

const busyPauseMs = 250; // before input is sent again that was refused for the moment

const [isOpen, isClosing] = [1, 2]; // readyState, as the WebSocket standard numbers it

export class Socket {
  readonly #outbox = new Outbox();
  readonly #acks = new Acks();
  readonly #platform: Platform;
  readonly #clock: Clock;
  readonly #client: string; // names this terminal's sockets, all of them
  #state = initial();
  #socket: WebSocket | undefined;
  #timer: unknown;
  #ackTimer: unknown;
  #busyTimer: unknown;
  #pulse = new Pulse(); // of the present socket
  #beat: unknown;
  #attempt = 0; // answers to earlier attempts are ignored
  #place = 0; // raised when the bytes don't continue what was received

  constructor(
    private readonly session: Session,
    private readonly options: SocketOptions,
    private readonly output: Output,
    private readonly hooks: SocketHooks,
  ) {
    this.#platform = session.platform;
    this.#clock = session.platform.clock;
    this.#client = session.platform.uuid();
  }

  get state(): Connection {
    return this.#state;
  }

  start = () => this.#handle({ type: 'start' });
  retry = () => this.#handle({ type: 'retry' });
  online = () => this.#handle({ type: 'online' });
  stop = () => this.#handle({ type: 'stop' });

  // live says that what is sent now reaches the sandbox.
  get live(): boolean {
    return this.#state.phase.name === 'attached' && this.#state.waiting === null;
  }

  send(message: ClientMessage): void {
    if (this.#socket?.readyState === isOpen) this.#socket.send(JSON.stringify(message));
  }

  // input says whether data, typed under term, was taken: sent, or kept until
  // it can be. It is refused whole.
  input(data: Uint8Array, term: number): boolean {
    const taken = this.#outbox.push(data, term, this.live);
    this.#pump();
    return taken;
  }

  // interrupt drops input that hasn't left yet, and says how much.
  interrupt(): number {
    const dropped = this.#outbox.interrupt();
    this.#pump();
    return dropped;
  }

  // retain drops input that waits and was typed under none of terms.
  retain(terms: readonly number[]): number {
    return this.#outbox.retain(terms);
  }

  get pending(): number {
    return this.#outbox.pending;
  }

  // progress of what is too much to be sent at once: how much waits, and which
  // part of it has left.
  get progress(): { waiting: number; done: number } {
    return { waiting: this.#outbox.waiting, done: this.#outbox.progress };
  }

  #handle(event: Event, bytes?: Uint8Array): void {
    const wasLive = this.live;
    const [next, effects] = step(this.#state, event, { now: this.#clock.date(), random: this.#platform.random() });
    const changed = next.phase !== this.#state.phase || next.waiting !== this.#state.waiting || next.exit !== this.#state.exit;
    this.#state = next;
    if (this.live && !wasLive) this.#sendAgain();
    for (const effect of effects) this.#run(effect, bytes);
    if (event.type === 'frame') this.#received(event.message);
    if (changed) this.hooks.changed(next);
    if (event.type === 'frame' && event.message.type === 'attached') this.look();
    this.#pump();
  }

  #received(message: ServerMessage): void {
    if (message.type === 'input_ack') this.#outbox.acked(message.seq);
    if (message.type === 'input_refused') this.#refused(message.reason, message.seq ?? 0);
    this.hooks.message(message);
  }

  // What is refused for the moment is sent again, when the sandbox is back or a
  // moment later; nothing behind it overtakes it. Anything else is forgotten.
  #refused(reason: string, seq: number): void {
    if (!momentary(reason)) {
      const bytes = this.#outbox.refused(seq);
      if (bytes > 0) this.hooks.dropped(bytes, reason);
      return;
    }
    this.#clock.clearTimeout(this.#busyTimer);
    this.#busyTimer = this.#clock.setTimeout(() => this.live && this.#sendAgain(), busyPauseMs);
  }

  #run(effect: Effect, bytes?: Uint8Array): void {
    switch (effect.type) {
      case 'prepare':
        return void this.#prepare(effect.freshGrant);
      case 'open':
        return this.#open(effect.url, effect.ticket);
      case 'hang-up':
        return this.#hangUp();
      case 'timer':
      case 'no-timer':
        this.#clock.clearTimeout(this.#timer);
        if (effect.type === 'timer') this.#timer = this.#clock.setTimeout(() => this.#handle({ type: 'timer' }), effect.ms);
        return;
      case 'elsewhere':
        return this.session.origins.failed(originOf(effect.url));
      case 'silent':
        return this.session.origins.silent(originOf(effect.url), this.#clock.date());
      case 'moved':
        return void this.session.origins.moved(effect.origin, this.#clock.date());
      case 'clear':
        return this.output.clear();
      case 'unseen':
        return this.output.unseen?.(effect.part, effect.skipped);
      case 'head':
        return this.output.head?.(effect.offset);
      case 'resize':
        return this.output.resize(effect.cols, effect.rows);
      case 'begin':
        if (!effect.continues) this.#place++;
        return this.#acks.begin(effect.offset);
      case 'write':
        if (bytes !== undefined) this.#write(bytes, effect.offset);
    }
  }

  #write(bytes: Uint8Array, offset: number | null): void {
    const place = this.#place;
    this.output.write(bytes, offset, () => {
      if (place !== this.#place) return; // of output that has been left behind
      if (offset === null) this.#sendAck();
      else this.#ack(offset + bytes.length);
    });
  }

  // ack tells how much is rendered, now or soon.
  #ack(rendered?: number): void {
    const received = this.#state.position?.offset ?? 0;
    const now = this.#clock.now();
    const due = rendered === undefined ? this.#acks.due(received, now) : this.#acks.rendered(rendered, received, now);
    if (due.send) this.#sendAck();
    if (due.laterMs === null) return;
    this.#clock.clearTimeout(this.#ackTimer);
    this.#ackTimer = this.#clock.setTimeout(() => this.#ack(), due.laterMs);
  }

  #sendAck(): void {
    if (this.#state.phase.name !== 'attached') return; // the next attached knows by itself
    this.send({ type: 'ack', offset: this.#acks.offset });
    this.#acks.said(this.#clock.now());
  }

  // sendAgain comes before anything new, also what a hook types: sequences rise.
  #sendAgain(): void {
    for (const { seq, term, bytes } of this.#outbox.again()) this.#socket?.send(encodeInput(seq, term, bytes));
  }

  #pump(): void {
    while (this.live) {
      const frame = this.#outbox.next();
      if (frame === undefined) return;
      this.#socket?.send(encodeInput(frame.seq, frame.term, frame.bytes));
    }
  }

  async #prepare(freshGrant: boolean): Promise<void> {
    const attempt = ++this.#attempt;
    let event: Event;
    try {
      event = { type: 'prepared', ...(await this.session.ticket(this.options.id, freshGrant)) };
    } catch (error) {
      event = { type: 'refused', status: error instanceof ApiError ? error.status : 0 };
    }
    if (attempt === this.#attempt) this.#handle(event);
  }

  #open(where: string, ticket: string): void {
    const url = new URL(where);
    url.searchParams.set('client', this.#client);
    if (this.options.followsSize) url.searchParams.set('size', 'follow');
    const socket = new this.#platform.WebSocket(url, [subprotocol, `ticket.${ticket}`]);
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    // Every handler checks that the socket is still the one in use.
    socket.onopen = () => {
      if (socket !== this.#socket) return;
      this.#handle({ type: 'opened' });
    };
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (socket !== this.#socket) return;
      if (typeof data !== 'string') {
        this.#pulse.heard(this.#clock.date(), false);
        this.#handle({ type: 'bytes', length: data.byteLength }, new Uint8Array(data));
        return;
      }
      const message = decode(data);
      this.#pulse.heard(this.#clock.date(), message?.type === 'pong');
      if (message !== undefined) this.#handle({ type: 'frame', message });
    };
    socket.onclose = ({ code }) => {
      if (socket !== this.#socket) return;
      this.#hangUp();
      this.#handle({ type: 'closed', code });
    };
  }

  // look asks the relay for a sign of life when it is time to, and leaves one
  // that gives none. Whoever changes how patient to be calls it, too.
  look(): void {
    this.#clock.clearTimeout(this.#beat);
    if (this.#state.phase.name !== 'attached') return;
    const { act, laterMs } = this.#pulse.due(this.#clock.date(), this.hooks.patience());
    if (act === 'leave') return this.#handle({ type: 'silent' });
    if (act === 'ask') this.send({ type: 'ping' });
    this.#beat = this.#clock.setTimeout(() => this.look(), laterMs);
  }

  #hangUp(): void {
    this.#attempt++;
    this.#clock.clearTimeout(this.#beat);
    this.#pulse = new Pulse();
    this.#clock.clearTimeout(this.#ackTimer);
    const socket = this.#socket;
    this.#socket = undefined;
    if (socket !== undefined && socket.readyState < isClosing) socket.close(1000);
  }
}
