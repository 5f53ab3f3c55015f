// One open terminal: its connection, who controls it and its screen.

import type { Ticket } from './api.ts';
import { question } from './clipboard.ts';
import { barred, type Connection, type Part } from './connection.ts';
import { atWork, controls, dropped, nobody, notice, refusal, terms, update, type Control } from './control.ts';
import { momentary, type ServerMessage, type Turn } from './protocol.ts';
import { alone, idle, seen, unseen, type Patience } from './pulse.ts';
import { closedToOthers } from './share.ts';
import { Socket } from './socket.ts';
import { Screen, type InputKind } from './terminal.ts';
import type { SizeStep } from './typesize.ts';

const lostTogetherMs = 3_000; // between two refusals that are told as one

export interface PaneHooks {
  prepare(freshGrant: boolean): Promise<Ticket>;
  elsewhere(url: string): void;
  moved(origin: string): void;
  silent(url: string): void;
  others(): boolean; // there is another relay to go to
  changed(): void;
  notice(text: string): void;
  stopped(turn: Turn): void; // an agent has finished a turn
  refused(text: string): void; // an agent is at work: it could be paused
  skipped(part: Part): void; // output that this screen will not show
  confirm(title: string, text: string, yes: string): Promise<boolean>;
  leave(): void;
  find(): void;
  found(index: number, count: number): void;
  size(step: SizeStep): void;
  link(url: string): void;
  relist(): void; // there may be other terminals now
  news(): void; // there are
  modify(data: string): string; // what the on-screen Ctrl makes of a key
}

export class Pane {
  readonly socket: Socket;
  readonly screen: Screen;
  control: Control;
  unseen = false; // output came while another terminal was shown
  shown = false;
  recording = ''; // id of the recording that runs
  shared = closedToOthers; // to whose programs the terminal is open
  held = false; // the echo of what was typed waits: it may be the beginning of a secret
  earlier: Part | null = null; // what was before the screen that was received first
  #wanted: { cols: number; rows: number } | undefined; // the size last asked for
  #lost = { bytes: 0, at: 0 }; // what was refused for good, and when last
  #leads = true; // of its controller's windows, this one gives the size
  readonly #encoder = new TextEncoder();

  constructor(
    readonly id: string,
    you: { id: string; name: string },
    host: HTMLElement,
    private readonly hooks: PaneHooks,
  ) {
    this.control = nobody(you.id, you.name);
    this.screen = new Screen(host, {
      input: (data, kind) => this.#input(data, kind),
      binary: (data) => this.#binary(data),
      paste: (text) => void this.paste(text),
      resized: () => this.layout(false),
      clicked: () => this.#attend(),
      leave: hooks.leave,
      find: hooks.find,
      found: hooks.found,
      size: hooks.size,
      link: hooks.link,
      copied: (done) => hooks.notice(done ? 'Copied' : 'The browser does not let this page write the clipboard'),
    });
    this.socket = new Socket({
      prepare: hooks.prepare,
      elsewhere: hooks.elsewhere,
      moved: hooks.moved,
      silent: hooks.silent,
      patience: () => this.#patience(),
      changed: (state) => this.#connection(state),
      message: (message) => this.#message(message),
      dropped: (bytes, reason) => this.#dropped(bytes, reason),
      clear: () => this.screen.clear(),
      unseen: (part, skipped) => this.#missed(part, skipped),
      head: (offset) => this.screen.head(offset),
      resize: (cols, rows) => this.screen.resize(cols, rows),
      write: (bytes, offset, rendered) => this.#write(bytes, offset, rendered),
    });
  }

  get mine(): boolean {
    return controls(this.control) && !atWork(this.control);
  }

  show(shown: boolean): void {
    this.shown = shown;
    this.screen.show(shown);
    this.socket.look();
    if (!shown) return;
    this.unseen = false;
    this.layout(true);
  }

  // layout fits the screen into its place, all of it where nobody can ask for
  // another size. With ask, a controller who looks at
  // it also asks for the size that fills the place.
  layout(ask: boolean): void {
    if (!this.shown) return;
    ask &&= this.mine && this.socket.live && !document.hidden;
    const fits = this.screen.layout(this.leads && !barred(this.socket.state));
    this.hooks.changed();
    if (!ask || fits === undefined) return;
    const asked = this.#wanted?.cols === fits.cols && this.#wanted.rows === fits.rows;
    this.#wanted = fits;
    if (!asked) this.socket.send({ type: 'resize', ...fits });
  }

  // paste asks first where a program would take each line for typed.
  async paste(text: string): Promise<void> {
    const why = text === '' ? undefined : this.#unable();
    if (why !== undefined) return this.#sayNo(why);
    const ask = question(text, this.screen.bracketed);
    if (ask === null || (await this.hooks.confirm(ask.title, ask.preview, 'Paste'))) this.screen.paste(text);
  }

  // discard forgets what was typed and not sent.
  discard(): void {
    this.socket.retain([]);
    this.hooks.changed();
  }

  // leads says that this window gives the terminal its size.
  get leads(): boolean {
    return this.mine && this.#leads;
  }

  // attend says that somebody is at this window.
  #attend(): void {
    if (this.mine && !this.#leads && this.socket.live) this.socket.send({ type: 'lead' });
  }

  // interrupt stops a paste that has not left yet.
  interrupt(): void {
    if (this.socket.interrupt() > 0) this.hooks.notice('The rest of what waited was not sent');
    this.hooks.changed();
  }

  close(): void {
    this.socket.stop();
    this.screen.dispose();
  }

  #patience(): Patience {
    if (this.shown && !document.hidden) return this.hooks.others() ? seen : alone;
    return this.mine && this.hooks.others() ? unseen : idle;
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
    if (message.type === 'pong') return;
    if (message.type === 'terminals_changed') return this.hooks.news();
    if (message.type === 'input_ack') return this.hooks.changed(); // progress
    const before = this.control;
    const had = this.mine;
    this.control = update(before, message, Date.now());
    this.#tell(before, message);
    if (message.type === 'agent_stopped') this.hooks.stopped(message);
    if (message.type === 'recording') this.recording = message.id;
    if (message.type === 'shared') this.shared = message.with;
    if (message.type === 'output_held') this.held = message.held;
    if (message.type === 'attached') [this.recording, this.shared, this.held] = ['', closedToOthers, false]; // said anew
    if (message.type === 'attached') this.#leads = true; // until the relay says otherwise
    if (message.type === 'leading') this.#leads = message.leads;
    if (!controls(this.control)) this.#leads = true; // as whoever gets control takes for granted
    this.#keepTerm();
    if (had !== this.mine) {
      this.#wanted = undefined;
      this.layout(true);
    } else if (message.type === 'leading') this.layout(false);
    this.hooks.changed();
  }

  #tell(before: Control, message: ServerMessage): void {
    let text = notice(before, message);
    if (message.type === 'input_refused' && message.reason === 'agent_running') {
      this.socket.retain([]);
      return this.hooks.refused(refusal(before, message.reason));
    }
    if (message.type === 'input_refused' && !momentary(message.reason)) {
      const rest = this.socket.retain([]); // of a paste with a hole in it
      if (rest > 0) this.#dropped(rest, message.reason);
      if (message.seq === undefined) text = refusal(before, message.reason);
    }
    if (text !== undefined) this.hooks.notice(text);
  }

  // dropped tells how much was refused for good, all together: it was refused one
  // key at a time.
  #dropped(bytes: number, reason: string): void {
    const now = Date.now();
    this.#lost = { bytes: bytes + (now - this.#lost.at < lostTogetherMs ? this.#lost.bytes : 0), at: now };
    this.hooks.notice(dropped(this.control, this.#lost.bytes, reason));
  }

  // keepTerm drops what was typed under an earlier term and not sent.
  #keepTerm(): void {
    if (!this.control.known) return;
    const dropped = this.socket.retain(terms(this.control));
    if (dropped > 0) this.hooks.notice('Control has changed: what you typed last was not sent');
  }

  #missed(part: Part, skipped: boolean): void {
    if (skipped) this.hooks.skipped(part);
    else this.earlier = part.to > 0 ? part : null;
  }

  #write(bytes: Uint8Array, offset: number | null, rendered: () => void): void {
    this.screen.write(bytes, offset, rendered);
    if (this.shown || this.unseen) return;
    this.unseen = true;
    this.hooks.changed();
  }

  #input(typed: string, kind: InputKind): void {
    const data = kind === 'typed' ? this.hooks.modify(typed) : typed;
    const why = this.#unable();
    if (why !== undefined) {
      if (kind === 'typed') this.#sayNo(why);
      return;
    }
    if (kind !== 'typed' && !this.mine) return; // keys take a free terminal, nothing else does
    const { live } = this.socket;
    if (!live && kind !== 'typed') return; // of no use later
    if (data === '\x03') this.interrupt();
    const taken = this.socket.input(this.#encoder.encode(data), this.#term);
    if (!taken) this.hooks.notice(live ? 'Too much at once: nothing of it was sent' : 'Too much to keep without a connection: dropped');
    this.hooks.changed();
  }

  #binary(data: string): void {
    if (this.socket.live && this.mine && this.#unable() === undefined) {
      this.socket.input(Uint8Array.from(data, (c) => c.charCodeAt(0)), this.#term);
    }
  }

  // term is the one under which typing counts now.
  get #term(): number {
    return terms(this.control)[0] ?? this.control.term;
  }

  // mayPause says that an agent alone stands in the way.
  get #mayPause(): boolean {
    return this.control.canControl && atWork(this.control) && this.socket.state.phase.name === 'attached';
  }

  #sayNo(why: string): void {
    if (this.#mayPause) this.hooks.refused(why);
    else this.hooks.notice(why);
  }

  // unable says why there is no use in typing. Without a connection there is:
  // keys are kept, and sent if control hasn't changed by then.
  #unable(): string | undefined {
    const { phase, exit, everAttached } = this.socket.state;
    if (exit !== null || (phase.name === 'over' && phase.why === 'ended')) return refusal(this.control, 'ended');
    if (phase.name === 'over' || !everAttached) return 'Not sent: there is no connection';
    if (this.control.canControl && atWork(this.control)) return refusal(this.control, 'agent_running');
    return terms(this.control).length > 0 ? undefined : refusal(this.control, 'not_controller');
  }
}
