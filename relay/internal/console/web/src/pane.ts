// One open terminal: its connection, who controls it and its screen.

import type { Ticket } from './api.ts';
import type { Connection } from './connection.ts';
import { controls, nobody, notice, refusal, update, type Control } from './control.ts';
import type { ServerMessage } from './protocol.ts';
import { Socket } from './socket.ts';
import { Sole } from './sole.ts';
import { Screen, type InputKind } from './terminal.ts';

export interface PaneHooks {
  prepare(freshGrant: boolean): Promise<Ticket>;
  changed(): void;
  notice(text: string): void;
  leave(): void;
  link(url: string): void;
  relist(): void; // there may be other terminals now
  modify(data: string): string; // what the on-screen Ctrl makes of a key
}

export class Pane {
  readonly socket: Socket;
  readonly screen: Screen;
  control: Control;
  unseen = false; // output came while another terminal was shown
  shown = false;
  readonly #sole: Sole;
  #wanted: { cols: number; rows: number } | undefined; // the size last asked for
  #leads = true; // of its controller's windows, this one gives the size
  readonly #encoder = new TextEncoder();

  constructor(
    readonly id: string,
    you: { id: string; name: string },
    host: HTMLElement,
    private readonly hooks: PaneHooks,
  ) {
    this.control = nobody(you.id, you.name);
    this.#sole = new Sole(`${you.id}.${id}`);
    this.screen = new Screen(host, {
      input: (data, kind) => this.#input(data, kind),
      binary: (data) => this.#binary(data),
      asked: (answer) => this.#answer(answer),
      resized: () => this.layout(false),
      leave: hooks.leave,
      link: hooks.link,
      overrun: () => this.socket.overrun(),
      drained: () => this.socket.drained(),
    });
    this.socket = new Socket({
      prepare: hooks.prepare,
      changed: (state) => this.#connection(state),
      message: (message) => this.#message(message),
      clear: () => this.screen.clear(),
      head: (offset) => this.screen.head(offset),
      resize: (cols, rows) => this.screen.resize(cols, rows),
      write: (bytes, offset) => this.#write(bytes, offset),
    });
  }

  get mine(): boolean {
    return controls(this.control);
  }

  show(shown: boolean): void {
    this.shown = shown;
    this.screen.host.hidden = !shown;
    if (!shown) return;
    this.unseen = false;
    this.layout(true);
  }

  // layout fits the screen into its place. With ask, a controller who looks at
  // it also asks for the size that fills the place.
  layout(ask: boolean): void {
    if (!this.shown) return;
    ask &&= this.mine && this.socket.attached && !document.hidden;
    this.#leads ||= ask;
    const fits = this.screen.layout(this.mine && this.#leads);
    this.hooks.changed();
    if (!ask || fits === undefined) return;
    const asked = this.#wanted?.cols === fits.cols && this.#wanted.rows === fits.rows;
    this.#wanted = fits;
    if (fits.cols === this.screen.cols && fits.rows === this.screen.rows) return;
    if (!asked) this.socket.send({ type: 'resize', ...fits });
  }

  close(): void {
    this.socket.stop();
    this.#sole.close();
    this.screen.dispose();
  }

  #connection(state: Connection): void {
    if (state.phase.name === 'attached') {
      this.#wanted = undefined;
      this.screen.settled(() => this.layout(true)); // the size in attached comes first
    }
    if (state.phase.name === 'attached' || state.phase.name === 'over') this.hooks.relist();
    this.hooks.changed();
  }

  #message(message: ServerMessage): void {
    const before = this.control;
    this.control = update(before, message, Date.now());
    const text = message.type === 'input_refused' ? refusal(before, message.reason) : notice(before, message);
    if (text !== undefined) this.hooks.notice(text);
    if (message.type === 'resized') {
      this.#leads = message.cols === this.#wanted?.cols && message.rows === this.#wanted.rows;
      if (!this.#leads) this.#wanted = undefined;
    }
    const was = controls(before);
    if (was && !this.mine && this.socket.interrupt() > 0) this.hooks.notice('Control is gone: the rest of what you pasted was not sent');
    if (was !== this.mine) this.layout(true);
    this.hooks.changed();
  }

  #write(bytes: Uint8Array, offset: number | null): void {
    this.screen.write(bytes, offset);
    if (this.shown || this.unseen) return;
    this.unseen = true;
    this.hooks.changed();
  }

  #input(typed: string, kind: InputKind): void {
    const data = kind === 'typed' ? this.hooks.modify(typed) : typed;
    const why = this.#unable();
    if (why !== undefined) {
      if (kind === 'typed') this.hooks.notice(why);
      return;
    }
    if (data === '\x03' && this.socket.inputPending > 0) {
      this.socket.interrupt();
      this.hooks.notice('The rest of what you pasted was not sent');
    }
    if (!this.socket.input(this.#encoder.encode(data))) this.hooks.notice('Too much at once: nothing of it was sent');
  }

  #binary(data: string): void {
    if (this.#unable() === undefined) this.socket.input(Uint8Array.from(data, (c) => c.charCodeAt(0)));
  }

  #answer(answer: string): void {
    if (this.#sole.held && this.#unable() === undefined) this.socket.input(this.#encoder.encode(answer));
  }

  // unable says why input can't be sent now. What can't be sent is dropped:
  // keys that arrive minutes later would hit something else.
  #unable(): string | undefined {
    const { phase, waiting, exit } = this.socket.state;
    if (exit !== null || (phase.name === 'over' && phase.why === 'ended')) return refusal(this.control, 'ended');
    if (phase.name !== 'attached') return 'Not sent: there is no connection';
    if (waiting !== null) return refusal(this.control, 'waiting');
    return this.mine ? undefined : refusal(this.control, 'not_controller');
  }
}
