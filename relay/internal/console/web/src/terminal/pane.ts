// One open terminal on the page: the core's terminal, and its screen.

import { barred, momentary, Terminal, type Connection, type Control, type LogPart, type Person, type ServerMessage, type Session, type Turn } from '@fairlead/core';
import { ask, hint, type HintAction } from '../ui/ask.ts';
import { question } from '../ui/clipboard.ts';
import type { SizeStep } from '../ui/typesize.ts';
import { Screen, type InputKind } from './screen.ts';
import { dropped, notice, obstacleText, refusal } from './words.ts';

const lostTogetherMs = 3_000; // refusals this close are reported as one

export interface PaneHooks {
  changed(): void;
  stopped(turn: Turn): void; // an agent has finished a turn
  skipped(part: LogPart): void; // the person wants to see output that this screen will not show
  leave(): void;
  find(): void;
  found(index: number, count: number): void;
  size(step: SizeStep): void;
  pause: (() => void) | undefined; // the agent, for who may do that
  relist(): void; // there may be other terminals now
  news(): void; // there are
  modify(data: string): string; // what the on-screen Ctrl makes of a key
}

export interface PaneOptions {
  id: string; // of the terminal
  you: Person;
  host: HTMLElement;
  followsSize: boolean; // the page is a panel beside something else
}

export class Pane {
  readonly terminal: Terminal;
  readonly screen: Screen;
  unseen = false; // output came while another terminal was shown
  shown = false;
  earlier: LogPart | null = null; // what was before the screen that was received first
  #wanted: { cols: number; rows: number } | undefined; // the size last asked for
  #lost = { bytes: 0, at: 0 }; // what was refused for good, and when last
  #mine = false;
  readonly #encoder = new TextEncoder();

  constructor(session: Session, { id, you, host, followsSize }: PaneOptions, private readonly hooks: PaneHooks) {
    this.screen = new Screen(host, {
      input: (data, kind) => this.#input(data, kind),
      binary: (data) => this.#binary(data),
      paste: (text) => void this.paste(text),
      resized: () => this.layout(false),
      clicked: () => this.terminal.attend(),
      leave: hooks.leave,
      find: hooks.find,
      found: hooks.found,
      size: hooks.size,
      link: (url) => void openLink(url),
      copied: (done) => this.#say(done ? 'Copied' : 'The browser does not let this page write the clipboard'),
    });
    this.terminal = new Terminal(session, id, you, {
      seen: () => this.shown && !document.hidden,
      connection: (state) => this.#connection(state),
      message: (message, before) => this.#message(message, before),
      changed: () => hooks.changed(),
      dropped: (bytes, reason) => this.#dropped(bytes, reason),
      withdrawn: () => this.#say('Control has changed: what you typed last was not sent'),
      clear: () => this.screen.clear(),
      unseen: (part, skipped) => this.#missed(part, skipped),
      head: (offset) => this.screen.head(offset),
      resize: (cols, rows) => this.screen.resize(cols, rows),
      write: (bytes, offset, rendered) => this.#write(bytes, offset, rendered),
    }, { followsSize });
  }

  get id(): string {
    return this.terminal.id;
  }

  get control(): Control {
    return this.terminal.control;
  }

  get mine(): boolean {
    return this.terminal.mine;
  }

  show(shown: boolean): void {
    this.shown = shown;
    this.screen.show(shown);
    this.terminal.look();
    if (!shown) return;
    this.unseen = false;
    this.layout(true);
  }

  // layout fits the screen into its place, all of it where nobody can ask for
  // another size. With ask, a controller who looks at it also asks for the size
  // that fills the place.
  layout(ask: boolean): void {
    if (!this.shown) return;
    const { terminal } = this;
    ask &&= terminal.mine && terminal.live && !document.hidden;
    const fits = this.screen.layout(terminal.leads && !barred(terminal.connection));
    this.hooks.changed();
    if (!ask || fits === undefined) return;
    const asked = this.#wanted?.cols === fits.cols && this.#wanted.rows === fits.rows;
    this.#wanted = fits;
    if (!asked) terminal.send({ type: 'resize', ...fits });
  }

  // paste asks first where a program would take each line for typed.
  async paste(text: string): Promise<void> {
    if (text !== '' && this.#refuse()) return;
    const asks = question(text, this.screen.bracketed);
    if (asks === null || (await ask(asks.title, asks.preview, 'Paste'))) this.screen.paste(text);
  }

  // discard forgets what was typed and not sent.
  discard(): void {
    this.terminal.discard();
    this.hooks.changed();
  }

  // interrupt stops a paste that has not left yet.
  interrupt(): void {
    if (this.terminal.interrupt() > 0) this.#say('The rest of what waited was not sent');
    this.hooks.changed();
  }

  close(): void {
    this.terminal.stop();
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

  #message(message: ServerMessage, before: Control): void {
    if (message.type === 'terminals_changed') return this.hooks.news();
    this.#tell(before, message);
    if (message.type === 'agent_stopped') this.hooks.stopped(message);
    const had = this.#mine;
    this.#mine = this.mine;
    if (had !== this.#mine) {
      this.#wanted = undefined;
      this.layout(true);
    } else if (message.type === 'leading') this.layout(false);
  }

  #tell(before: Control, message: ServerMessage): void {
    let text = notice(before, message);
    if (message.type === 'input_refused') {
      if (message.reason === 'agent_running') return this.#offerPause(refusal(before, message.reason));
      if (!momentary(message.reason) && message.seq === undefined) text = refusal(before, message.reason);
    }
    if (text !== undefined) this.#say(text);
  }

  // dropped tells how much was refused for good, all together: it was refused one
  // key at a time.
  #dropped(bytes: number, reason: string): void {
    const now = Date.now();
    this.#lost = { bytes: bytes + (now - this.#lost.at < lostTogetherMs ? this.#lost.bytes : 0), at: now };
    this.#say(dropped(this.control, this.#lost.bytes, reason));
  }

  #missed(part: LogPart, skipped: boolean): void {
    if (skipped) this.#say('Some output was skipped: the connection was too slow.', { label: 'Show it', run: () => this.hooks.skipped(part) });
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
    if (kind === 'typed' ? this.#refuse() : this.terminal.obstacle !== null) return;
    if (kind !== 'typed' && !this.mine) return; // keys take a free terminal, nothing else does
    const { live } = this.terminal;
    if (!live && kind !== 'typed') return; // of no use later
    if (data === '\x03') this.interrupt();
    const full = this.terminal.type(this.#encoder.encode(data)) === 'full';
    if (full) this.#say(live ? 'Too much at once: nothing of it was sent' : 'Too much to keep without a connection: dropped');
    this.hooks.changed();
  }

  #binary(data: string): void {
    if (this.terminal.live && this.mine) this.terminal.type(Uint8Array.from(data, (c) => c.charCodeAt(0)));
  }

  // refuse says why there is no use in typing, and whether there is none. Who
  // could pause an agent is offered that.
  #refuse(): boolean {
    const { obstacle, connection } = this.terminal;
    if (obstacle === null) return false;
    const text = obstacleText(this.control, obstacle);
    if (obstacle === 'agent_running' && connection.phase.name === 'attached') this.#offerPause(text);
    else this.#say(text);
    return true;
  }

  #offerPause(text: string): void {
    this.#say(text, this.hooks.pause && { label: 'Pause', run: this.hooks.pause });
  }

  // say says something about a terminal that is looked at.
  #say(text: string, action?: HintAction): void {
    if (this.shown) hint(text, action);
  }
}

// openLink opens a link from a terminal's output, which anybody may have written:
// the person sees where it goes.
async function openLink(url: string): Promise<void> {
  if (!/^https?:\/\//i.test(url)) return hint('Only links to web pages can be opened');
  if (await ask('Open this link?', url, 'Open')) window.open(url, '_blank', 'noopener,noreferrer');
}
