// Carries out what the machine asks for: requests, one socket at a time, a pause.

import { ApiError, call, type Platform, type Session } from '@fairlead/core';
import { idle, step, type Effect, type Happening, type Machine, type State } from './machine.ts';

export interface Size {
  cols: number;
  rows: number;
}

export interface Hooks {
  changed(state: State): void;
  size(): Size;
  write(bytes: Uint8Array): void;
  reset(): void;
  note(text: string): void; // for the person, once
  refused(error: ApiError): void; // the token is over
}

// Kept is where a terminal's name outlives the page.
export interface Kept {
  get(): string | null;
  set(session: string | null): void;
}

// What may wait in the socket, and without one.
const mostBuffered = 1 << 20;
const mostWaiting = 4_096;
// The relay sends a sign of life every 25 s.
const silenceMs = 60_000;
const askMs = 10_000;
// Closed so, the terminal ends with its socket.
const doneCode = 1000;

export class PanelTerminal {
  #machine: Machine = idle;
  #socket: WebSocket | undefined;
  #turn = 0; // of the attempt: what an earlier one hears is of no interest
  #timer: unknown;
  #silence: unknown;
  #waiting = '';
  readonly #forget: () => void;
  #about: Record<string, unknown> | undefined; // the person's tab, while she shares it

  constructor(
    private readonly session: Session,
    private readonly hooks: Hooks,
    private readonly kept: Kept,
    private readonly platform: Platform,
  ) {
    // A socket lives under a grant, which ends before long.
    this.#forget = session.onRenewed((grant) => {
      if (this.state.name === 'live') this.#tell({ type: 'reauth', grant });
    });
  }

  get state(): State {
    return this.#machine.state;
  }

  // resume goes on with what the page had before it was loaded anew.
  resume(): void {
    const session = this.kept.get();
    if (session !== null) this.#happen({ is: 'found', session });
  }

  start(): void {
    this.#happen({ is: 'start' });
  }

  // type sends what the person typed. Without a connection a little of it waits.
  type(data: string): void {
    const socket = this.#socket;
    if (this.state.name === 'live' && socket !== undefined) {
      if (socket.bufferedAmount > mostBuffered) this.hooks.note('The connection is too slow for that much. It was not typed.');
      else socket.send(new TextEncoder().encode(data));
    } else if (this.state.name === 'lost') {
      if (this.#waiting.length + data.length > mostWaiting) this.hooks.note('There is no connection. What you typed last was dropped.');
      else this.#waiting += data;
    }
  }

  resized(): void {
    if (this.state.name === 'live') this.#resize();
  }

  // look tells the program which of the person's tabs is in front; undefined:
  // nothing is told.
  look(about: Record<string, unknown> | undefined): void {
    this.#about = about;
    if (this.state.name === 'live' && about !== undefined) this.#tell({ type: 'tabSwitch', ...about });
  }

  // now connects at once: there may be a network again.
  now(): void {
    this.#happen({ is: 'online' });
  }

  // leave ends the connection. The terminal is kept for a while.
  leave(): void {
    this.#forget();
    this.#leave();
    this.#machine = idle;
  }

  // stop ends the terminal, which nobody comes back to.
  stop(): void {
    this.#forget();
    this.kept.set(null);
    this.#leave(doneCode);
    this.#machine = idle;
  }

  #happen(happening: Happening): void {
    const before = this.#machine.state;
    const [next, effects] = step(this.#machine, happening, this.platform.clock.now());
    this.#machine = next;
    for (const effect of effects) this.#do(effect);
    if (next.state === before) return;
    if (next.state.name === 'live') this.#flush();
    else if (next.state.name !== 'lost') this.#waiting = '';
    this.hooks.changed(next.state);
  }

  #do(effect: Effect): void {
    switch (effect.do) {
      case 'mint':
        return this.#mint('/pty-session', undefined);
      case 'reattach':
        return this.#mint('/pty-session/reattach', { sessionId: effect.session });
      case 'ask':
        return this.#ask();
      case 'open':
        return this.#open(effect.token);
      case 'begin':
        this.#resize();
        if (this.#about !== undefined) this.#tell({ type: 'tabSwitch', ...this.#about });
        return this.#tell({ type: 'start' });
      case 'resize':
        return this.#resize();
      case 'reset':
        return this.hooks.reset();
      case 'answer':
        this.#watch();
        return this.#tell(effect.message);
      case 'pause':
        this.#timer = this.platform.clock.setTimeout(() => this.#happen({ is: 'due' }), effect.ms);
        return;
      case 'keep':
        return this.kept.set(effect.session);
      case 'forget':
        return this.kept.set(null);
      case 'leave':
        return this.#leave();
    }
  }

  // mint asks for a terminal, or for the way back to one.
  #mint(path: string, body: unknown): void {
    const turn = ++this.#turn;
    this.session
      .ask((origin, grant) => call(origin + path, { method: 'POST', bearer: grant, ms: askMs, ...(body === undefined ? {} : { body }) }, this.platform))
      .then(async (answer) => {
        const { sessionId = '', attachToken, ptySessionToken } = (await answer.json()) as Record<string, string | undefined>;
        const token = attachToken ?? ptySessionToken;
        if (token === undefined) throw new ApiError(0, 'the relay gave no token');
        if (turn === this.#turn) this.#happen({ is: 'minted', session: sessionId, token });
      })
      .catch((error: unknown) => this.#refused(turn, error));
  }

  #ask(): void {
    const turn = ++this.#turn;
    this.session
      .ask((origin, grant) => call(`${origin}/claude-available`, { bearer: grant, ms: askMs }, this.platform))
      .then(async (answer) => {
        const { available } = (await answer.json()) as { available?: boolean };
        if (turn === this.#turn) this.#happen({ is: 'available', available: available === true });
      })
      .catch((error: unknown) => this.#refused(turn, error));
  }

  #refused(turn: number, error: unknown): void {
    if (turn !== this.#turn) return;
    if (error instanceof ApiError && error.status === 401) return this.hooks.refused(error);
    const known = error instanceof ApiError;
    this.#happen({ is: 'refused', reason: known ? error.message : 'the relay gave an answer that makes no sense', again: !known || error.passing });
  }

  #open(token: string): void {
    const turn = ++this.#turn;
    const address = new URL('/ws', this.session.origins.current);
    address.protocol = address.protocol.replace('http', 'ws');
    const socket = new this.platform.WebSocket(address, [`gstack-pty.${token}`]);
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    const mine = (run: () => void) => {
      if (turn === this.#turn) run();
    };
    socket.onopen = () => mine(() => this.#happen({ is: 'open' }));
    socket.onmessage = ({ data }: MessageEvent<unknown>) => mine(() => this.#heard(data));
    socket.onclose = ({ code }) => mine(() => {
      this.#leave();
      this.#happen({ is: 'closed', code });
    });
  }

  #heard(data: unknown): void {
    if (data instanceof ArrayBuffer) return this.hooks.write(new Uint8Array(data));
    if (typeof data !== 'string') return;
    let message: unknown;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    if (typeof message !== 'object' || message === null) return;
    const { type, message: text, origin } = message as Record<string, unknown>;
    if (type === 'error' && typeof text === 'string') this.hooks.note(text);
    if (type === 'moved' && typeof origin === 'string') this.session.origins.moved(origin, this.platform.clock.now());
    this.#happen({ is: 'message', message: message as Record<string, unknown> });
  }

  // watch leaves a connection on which signs of life have stopped.
  #watch(): void {
    this.platform.clock.clearTimeout(this.#silence);
    this.#silence = this.platform.clock.setTimeout(() => {
      this.#leave();
      this.#happen({ is: 'closed', code: 1006 });
    }, silenceMs);
  }

  #resize(): void {
    const { cols, rows } = this.hooks.size();
    this.#tell({ type: 'resize', cols: Math.max(cols, 2), rows: Math.max(rows, 2) });
  }

  #flush(): void {
    if (this.#waiting !== '') this.#socket?.send(new TextEncoder().encode(this.#waiting));
    this.#waiting = '';
  }

  #tell(message: Record<string, unknown>): void {
    this.#socket?.send(JSON.stringify(message));
  }

  // leave without a code means that the panel may come back.
  #leave(code?: number): void {
    this.#turn++;
    this.platform.clock.clearTimeout(this.#timer);
    this.platform.clock.clearTimeout(this.#silence);
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close(code);
  }
}
