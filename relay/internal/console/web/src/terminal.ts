// One terminal's screen: xterm.js, with everything applied in the order of the
// byte stream (sizes, clearing, where history ends) and no answers of its own.

import { FitAddon } from '@xterm/addon-fit';
import { UnicodeGraphemesAddon } from '@xterm/addon-unicode-graphemes';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { Terminal } from '@xterm/xterm';
import './adopted-style.ts';
import { automatic, fromPointer, report, silence } from './replies.ts';
import { browser } from './storage.ts';
import { font, fontFamily, lightPreferred, stillPreferred, theme } from './theme.ts';

const scrollbackLines = 10_000;
const scrollbarPx = 14; // what addon-fit leaves for it
// More than this unparsed: the relay should pause; less than that: go on.
const overrunBytes = 8 << 20;
const drainedBytes = 256 << 10;

const cancelSequence = Uint8Array.of(0x18); // CAN: also ends a character that was cut

export type InputKind = 'typed' | 'pointer' | 'automatic';

export interface ScreenHooks {
  input(data: string, kind: InputKind): void;
  binary(data: string): void;
  asked(answer: string): void; // a program wants to know where the cursor is
  resized(): void;
  leave(): void; // F6
  link(url: string): void;
  overrun(): void;
  drained(): void;
}

export class Screen {
  readonly #term: Terminal;
  readonly #fit = new FitAddon();
  #head = 0;
  #quietAhead = true; // of the bytes written next
  #quiet = true; // of the bytes being parsed: no answers, no focus reports
  #unparsed = 0;
  #overrun = false;
  readonly #unwatch = new AbortController();

  constructor(
    readonly host: HTMLElement,
    private readonly hooks: ScreenHooks,
  ) {
    this.#term = new Terminal({
      allowProposedApi: true, // the parser and unicode versions
      cursorBlink: !stillPreferred.matches,
      cursorInactiveStyle: 'outline',
      fontFamily,
      fontSize: font().base,
      linkHandler: { activate: (_, url) => hooks.link(url) }, // OSC 8
      macOptionIsMeta: true,
      minimumContrastRatio: 4.5,
      rightClickSelectsWord: false,
      screenReaderMode: browser.get('reader') === 'on',
      scrollback: scrollbackLines,
      smoothScrollDuration: 0,
      theme: theme(),
    });
    this.#term.loadAddon(this.#fit);
    this.#term.loadAddon(new UnicodeGraphemesAddon());
    this.#term.loadAddon(new WebLinksAddon((_, url) => hooks.link(url)));
    silence(this.#term.parser, (dec) => {
      const { cursorX, cursorY } = this.#term.buffer.active;
      if (!this.#quiet) hooks.asked(report(dec, cursorX, cursorY, this.#term.cols));
    });
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
    this.#scrollByTouch(signal);
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
    if (event.ctrlKey && event.shiftKey && event.code === 'KeyC') {
      event.preventDefault();
      if (event.type === 'keydown' && this.#term.hasSelection()) void navigator.clipboard.writeText(this.#term.getSelection());
      return false;
    }
    return !(event.ctrlKey && event.shiftKey && event.code === 'KeyV'); // the browser pastes
  }

  #paste(event: ClipboardEvent): void {
    event.preventDefault();
    event.stopPropagation();
    this.paste(event.clipboardData?.getData('text/plain') ?? '');
  }

  // paste sees to it that a text can't end its own bracket.
  paste(text: string): void {
    this.#term.paste(this.#term.modes.bracketedPasteMode ? text.replaceAll('\x1b', '\u241b') : text);
  }

  // xterm.js doesn't scroll by touch: make wheel events of it, which also
  // reach programs that use the mouse.
  #scrollByTouch(signal: AbortSignal): void {
    let last: number | undefined;
    this.host.addEventListener('touchstart', (e) => (last = e.touches.length === 1 ? e.touches[0]?.clientY : undefined), { passive: true, signal });
    this.host.addEventListener(
      'touchmove',
      (e) => {
        const y = e.touches[0]?.clientY;
        if (last === undefined || y === undefined || e.touches.length !== 1) return;
        const deltaY = last - y;
        if (Math.abs(deltaY) < 4) return;
        last = y;
        e.target?.dispatchEvent(new WheelEvent('wheel', { deltaY, bubbles: true, cancelable: true, clientX: e.touches[0]?.clientX ?? 0, clientY: y }));
      },
      { passive: true, signal },
    );
  }

  get cols(): number {
    return this.#term.cols;
  }

  get rows(): number {
    return this.#term.rows;
  }

  // scale is the font's size relative to a controller's.
  get scale(): number {
    return (this.#term.options.fontSize ?? font().base) / font().base;
  }

  // head says up to which offset bytes are history.
  head(offset: number): void {
    this.#head = offset;
  }

  // write shows bytes; a program's questions in history (before head, or in a
  // keyframe: offset null) were answered when they were new.
  write(bytes: Uint8Array, offset: number | null): void {
    const old = offset === null ? bytes.length : Math.min(Math.max(this.#head - offset, 0), bytes.length);
    if (old > 0) this.#put(bytes.subarray(0, old), true);
    if (old < bytes.length) this.#put(bytes.subarray(old), false);
  }

  #put(bytes: Uint8Array, quiet: boolean): void {
    if (quiet !== this.#quietAhead) {
      this.#quietAhead = quiet;
      this.settled(() => (this.#quiet = quiet));
    }
    this.#unparsed += bytes.length;
    this.#term.write(bytes, () => {
      this.#unparsed -= bytes.length;
      if (this.#overrun && this.#unparsed < drainedBytes) {
        this.#overrun = false;
        this.hooks.drained();
      }
    });
    if (!this.#overrun && this.#unparsed > overrunBytes) {
      this.#overrun = true;
      this.hooks.overrun();
    }
  }

  // settled runs when everything written before has been parsed.
  settled(run: () => void): void {
    this.#term.write('', run);
  }

  clear(): void {
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

  // layout fits the screen into its host. The controller's font stays as it is
  // and the size that would fill the host is returned, for the PTY to take; a
  // viewer's font is scaled until the PTY's size fits, as far as it is legible.
  layout(controller: boolean): { cols: number; rows: number } | undefined {
    if (this.host.clientWidth === 0) return undefined; // not shown
    const { base, least, most } = font();
    this.#setFont(base);
    const proposal = this.#fit.proposeDimensions();
    if (proposal !== undefined && !controller) {
      this.#setFont(Math.min(Math.max(base * this.#room(), least), most));
      while (this.#room() < 1 && (this.#term.options.fontSize ?? least) > least) {
        this.#setFont(Math.max((this.#term.options.fontSize ?? least) - 0.25, least));
      }
    }
    const element = this.#term.element;
    if (element !== undefined) {
      const { width, height } = this.#size();
      element.style.width = `${width}px`;
      element.style.height = `${height}px`;
    }
    this.host.classList.toggle('letterbox', !controller);
    return proposal !== undefined && Number.isFinite(proposal.cols) ? { cols: Math.min(proposal.cols, 1000), rows: Math.min(proposal.rows, 1000) } : undefined;
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

  // arrow is what an arrow key sends now: programs can change it.
  arrow(final: string): string {
    return this.#term.modes.applicationCursorKeysMode ? `\x1bO${final}` : `\x1b[${final}`;
  }

  readAloud(on: boolean): void {
    this.#term.options.screenReaderMode = on;
  }

  // text is what the screen shows, with lines that wrapped joined; all adds
  // what has scrolled away.
  text(all = false): string {
    const buffer = this.#term.buffer.active;
    const lines: string[] = [];
    for (let y = all ? 0 : buffer.baseY; y < buffer.length; y++) {
      const line = buffer.getLine(y);
      if (line === undefined) continue;
      const wraps = buffer.getLine(y + 1)?.isWrapped === true;
      const text = line.translateToString(!wraps);
      if (line.isWrapped && lines.length > 0) lines[lines.length - 1] += text;
      else lines.push(text);
    }
    return lines.join('\n').trimEnd();
  }

  dispose(): void {
    this.#unwatch.abort();
    this.#term.dispose();
    this.host.remove();
  }
}
