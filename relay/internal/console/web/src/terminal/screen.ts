// One terminal's screen: xterm.js, with everything applied in the order of the
// byte stream (sizes, clearing, where history ends) and no answers of its own.

import { FitAddon } from '@xterm/addon-fit';
import { UnicodeGraphemesAddon } from '@xterm/addon-unicode-graphemes';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { Terminal } from '@xterm/xterm';
import '../ui/adopted-style.ts';
import { copy } from '../ui/clipboard.ts';
import { shortcut } from '../ui/shortcuts.ts';
import { browser } from '../ui/storage.ts';
import { font, lightPreferred, looks, stillPreferred, theme } from '../ui/theme.ts';
import type { SizeStep } from '../ui/typesize.ts';
import { Finder } from './finder.ts';
import { bound } from './limits.ts';
import { Renderer } from './renderer.ts';
import { automatic, fromPointer, silence } from './replies.ts';
import type { Query } from './search.ts';
import { scrollByTouch } from './touch.ts';
import { Joiner } from './utf8.ts';

const scrollbackLines = 10_000;
const scrollbarPx = 14; // what addon-fit leaves for it
const cancelSequence = Uint8Array.of(0x18); // CAN: also ends a character that was cut

export type InputKind = 'typed' | 'pointer' | 'automatic';

export interface ScreenHooks {
  input(data: string, kind: InputKind): void;
  binary(data: string): void;
  paste(text: string): void;
  resized(): void;
  clicked(): void; // into the screen, or beside it
  leave(): void; // F6
  link(url: string): void;
  find(): void; // Ctrl+Shift+F
  size(step: SizeStep): void;
  copied(done: boolean): void;
  found(index: number, count: number): void; // index is -1 when there are too many to count
}

export class Screen {
  readonly #term: Terminal;
  readonly #fit = new FitAddon();
  readonly #finder: Finder;
  readonly #renderer: Renderer;
  readonly #joiner = new Joiner();
  #head = 0;
  #quietAhead = true; // of the bytes written next
  #quiet = true; // of the bytes being parsed: no focus reports
  readonly #unwatch = new AbortController();

  constructor(
    readonly host: HTMLElement,
    private readonly hooks: ScreenHooks,
  ) {
    this.#term = new Terminal({
      ...looks(),
      cursorBlink: !stillPreferred.matches,
      cursorInactiveStyle: 'outline',
      linkHandler: { activate: (_, url) => hooks.link(url) }, // OSC 8
      screenReaderMode: browser.get('reader') === 'on',
      scrollback: scrollbackLines,
    });
    this.#renderer = new Renderer(this.#term);
    this.#term.loadAddon(this.#fit);
    this.#finder = new Finder(this.#term, hooks.found);
    this.#term.loadAddon(new UnicodeGraphemesAddon());
    this.#term.loadAddon(new WebLinksAddon((_, url) => hooks.link(url)));
    silence(this.#term.parser);
    bound(this.#term.parser);
    this.#term.open(host);
    this.#listen();
  }

  #listen(): void {
    const { signal } = this.#unwatch;
    this.#term.onData((data) => {
      if (!automatic(data)) this.hooks.input(data, fromPointer(data) ? 'pointer' : 'typed');
      else if (!this.#quiet) this.hooks.input(data, 'automatic');
    });
    this.#term.onBinary((data) => this.hooks.binary(data));
    this.#term.attachCustomKeyEventHandler((event) => this.#key(event));
    this.host.addEventListener('paste', (event) => this.#paste(event), { capture: true, signal });
    this.#term.onCursorMove(() => this.#reveal());
    this.host.addEventListener('pointerdown', () => this.hooks.clicked(), { capture: true, signal });
    this.host.addEventListener('click', ({ target }) => { // beside a screen that is smaller than its place
      if (target === this.host) this.#term.focus();
    }, { signal });
    scrollByTouch(this.host, signal);
    lightPreferred.addEventListener('change', () => (this.#term.options.theme = theme()), { signal });
    stillPreferred.addEventListener('change', () => (this.#term.options.cursorBlink = !stillPreferred.matches), { signal });
    this.#term.textarea?.setAttribute('aria-label', 'Terminal. F6 leaves it.');
  }

  // key returns false for keys that aren't the terminal's.
  #key(event: KeyboardEvent): boolean {
    if (event.key === 'F6' && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      if (event.type === 'keydown') {
        if (event.shiftKey) this.hooks.input('\x1b[17~', 'typed');
        else this.hooks.leave();
      }
      return false;
    }
    const action = shortcut(event);
    if (action === undefined) return !(event.ctrlKey && event.shiftKey && event.code === 'KeyV'); // the browser pastes
    event.preventDefault();
    if (event.type !== 'keydown') return false;
    if (action === 'find') this.hooks.find();
    else if (action === 'copy') void this.copy();
    else this.hooks.size(action);
    return false;
  }

  // copy copies what is selected and says whether anything was.
  copy(): boolean {
    if (!this.#term.hasSelection()) return false;
    void copy(this.#term.getSelection()).then((done) => this.hooks.copied(done));
    return true;
  }

  // copyAll copies what the screen shows.
  copyAll(): void {
    void copy(this.text()).then((done) => this.hooks.copied(done));
  }

  #paste(event: ClipboardEvent): void {
    event.preventDefault();
    event.stopPropagation();
    this.hooks.paste(event.clipboardData?.getData('text/plain') ?? '');
  }

  // bracketed says that the program can tell a paste from typing.
  get bracketed(): boolean {
    return this.#term.modes.bracketedPasteMode;
  }

  // paste sees to it that a text can't end its own bracket.
  paste(text: string): void {
    this.#term.paste(this.#term.modes.bracketedPasteMode ? text.replaceAll('\x1b', '\u241b') : text);
  }

  get cols(): number {
    return this.#term.cols;
  }

  get rows(): number {
    return this.#term.rows;
  }

  // scale is the type's size relative to the normal one.
  get scale(): number {
    return this.#fontSize / font().normal;
  }

  get #fontSize(): number {
    return this.#term.options.fontSize ?? font().base;
  }

  get webgl(): boolean {
    return this.#renderer.webgl;
  }

  show(shown: boolean): void {
    this.host.hidden = !shown;
    this.#renderer.show(shown);
  }

  // head says up to which offset bytes are history.
  head(offset: number): void {
    this.#head = offset;
  }

  // write shows bytes; history (before head, or a keyframe: offset null) causes
  // no focus reports. rendered is called when all of it is on the screen.
  write(bytes: Uint8Array, offset: number | null, rendered: () => void): void {
    if (offset === null) this.#joiner.drop(); // the keyframe has it
    const old = offset === null ? bytes.length : Math.min(Math.max(this.#head - offset, 0), bytes.length);
    if (old > 0) this.#put(bytes.subarray(0, old), true);
    if (old < bytes.length) this.#put(bytes.subarray(old), false);
    this.settled(rendered);
  }

  #put(bytes: Uint8Array, quiet: boolean): void {
    if (quiet !== this.#quietAhead) {
      this.#quietAhead = quiet;
      this.settled(() => (this.#quiet = quiet));
    }
    this.#term.write(this.#joiner.join(bytes));
  }

  // settled runs when everything written before has been parsed.
  settled(run: () => void): void {
    this.#term.write('', run);
  }

  clear(): void {
    this.#joiner.drop();
    this.#put(cancelSequence, true);
    this.settled(() => this.#term.reset());
  }

  resize(cols: number, rows: number): void {
    this.settled(() => {
      if (cols === this.#term.cols && rows === this.#term.rows) return;
      this.#term.resize(cols, rows);
      this.hooks.resized();
    });
  }

  // layout fits the screen into its host. The controller's font is the chosen
  // one and the size that would fill the host is returned, for the PTY to take;
  // a viewer's is scaled until the PTY's size fits, as far as it is legible,
  // and then by as much as the person wants it bigger or smaller.
  layout(controller: boolean): { cols: number; rows: number } | undefined {
    if (this.host.clientWidth === 0) return undefined; // not shown
    const { base, normal, least, fitted, most } = font();
    this.#setFont(base);
    const proposal = this.#fit.proposeDimensions();
    if (proposal !== undefined && !controller) {
      this.#setFont(normal);
      this.#setFont(Math.min(Math.max(normal * this.#room(), least), fitted));
      while (this.#room() < 1 && this.#fontSize > least) this.#setFont(Math.max(this.#fontSize - 0.25, least));
      this.#setFont(Math.min(Math.max(this.#fontSize + base - normal, least), most));
    }
    const element = this.#term.element;
    if (element !== undefined) {
      const { width, height } = this.#size();
      element.style.width = `${width}px`;
      element.style.height = `${height}px`;
    }
    this.host.classList.toggle('letterbox', !controller);
    this.#reveal();
    return proposal !== undefined && Number.isFinite(proposal.cols) ? { cols: Math.min(proposal.cols, 1000), rows: Math.min(proposal.rows, 1000) } : undefined;
  }

  #revealing = false;

  // reveal scrolls a screen that is larger than its host to the cursor's line.
  #reveal(): void {
    if (this.#revealing) return;
    this.#revealing = true;
    requestAnimationFrame(() => {
      this.#revealing = false;
      const { scrollTop, clientHeight } = this.host;
      const { height } = this.#size();
      const line = height / this.rows;
      const top = this.#term.buffer.active.cursorY * line;
      if (height <= clientHeight) this.host.scrollTop = 0;
      else if (top < scrollTop) this.host.scrollTop = top;
      else if (top + 2 * line > scrollTop + clientHeight) this.host.scrollTop = top + 2 * line - clientHeight;
    });
  }

  #setFont(size: number): void {
    const rounded = Math.round(size * 4) / 4;
    if (this.#term.options.fontSize !== rounded) this.#term.options.fontSize = rounded;
  }

  // room is how many times the screen fits into the host, in the tighter
  // direction.
  #room(): number {
    const { width, height } = this.#size();
    return Math.min(this.host.clientWidth / width, this.host.clientHeight / height);
  }

  // size is that of the screen with its padding and scroll bar.
  #size(): { width: number; height: number } {
    const screen = this.#term.element?.querySelector('.xterm-screen');
    if (this.#term.element === undefined || !(screen instanceof HTMLElement)) return { width: 1, height: 1 };
    const padding = getComputedStyle(this.#term.element);
    return {
      width: screen.offsetWidth + scrollbarPx + parseFloat(padding.paddingLeft) + parseFloat(padding.paddingRight),
      height: screen.offsetHeight + parseFloat(padding.paddingTop) + parseFloat(padding.paddingBottom),
    };
  }

  focus(): void {
    this.#term.focus();
  }

  // type sends data as if it had been typed: keys of the on-screen bar.
  type(data: string): void {
    this.#term.input(data, true);
  }

  // arrow types an arrow key, as the program wants to have it.
  arrow(final: string): void {
    this.type(this.#term.modes.applicationCursorKeysMode ? `\x1bO${final}` : `\x1b[${final}`);
  }

  // find looks for text, as Finder does.
  find(query: Query, back: boolean, still: boolean): void {
    this.#finder.find(query, back, still);
  }

  endFind(): void {
    this.#finder.end();
  }

  readAloud(on: boolean): void {
    this.#term.options.screenReaderMode = on;
  }

  // selection is what is marked, "" when nothing is.
  get selection(): string {
    return this.#term.getSelection();
  }

  // text is what the screen shows, with lines that wrapped joined; all adds
  // what has scrolled away.
  text(all = false): string {
    const buffer = this.#term.buffer.active;
    return textOf(this.#term, all ? 0 : buffer.baseY);
  }

  dispose(): void {
    this.#unwatch.abort();
    this.#term.dispose();
    this.host.remove();
  }
}

// textOf is what a terminal holds from line from on.
export function textOf(term: Terminal, from: number): string {
  const buffer = term.buffer.active;
  const lines: string[] = [];
  for (let y = from; y < buffer.length; y++) {
    const line = buffer.getLine(y);
    if (line === undefined) continue;
    const wraps = buffer.getLine(y + 1)?.isWrapped === true;
    const text = line.translateToString(!wraps);
    if (line.isWrapped && lines.length > 0) lines[lines.length - 1] += text;
    else lines.push(text);
  }
  return lines.join('\n').trimEnd();
}
