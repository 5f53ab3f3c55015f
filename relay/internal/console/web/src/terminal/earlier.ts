// Output that is not on the screen: what was before it when this page came, or
// what was skipped when the page fell behind. Read again from the sandbox's log
// and shown in a terminal of its own that answers nothing and takes no input.

import type { LogPart } from '@fairlead/core';
import { UnicodeGraphemesAddon } from '@xterm/addon-unicode-graphemes';
import { Terminal } from '@xterm/xterm';
import { copy } from '../ui/clipboard.ts';
import { byId, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import { shortcut } from '../ui/shortcuts.ts';
import { looks } from '../ui/theme.ts';
import { Finder } from './finder.ts';
import { bound } from './limits.ts';
import { silence } from './replies.ts';
import { textOf } from './screen.ts';
import { SearchBar, type Searched } from './search.ts';
import { scrollByTouch } from './touch.ts';

export const pieceBytes = 256 << 10;
const mostBytes = 4 << 20;
const scrollback = 100_000;
const noCursor = '\x18\x1b[?25l'; // CAN: the output may end within a sequence

// last is the end of a part, at most bytes of it.
export function last(part: LogPart, bytes: number): LogPart {
  return { ...part, from: Math.max(part.from, part.to - bytes) };
}

export type Load = (part: LogPart) => Promise<{ from: number; bytes: Uint8Array }>;

export class Earlier {
  readonly #dialog = byId('earlier', HTMLDialogElement);
  readonly #host = byId('earlier-host');
  readonly #more = byId('earlier-more', HTMLButtonElement);
  readonly #search = new SearchBar();
  #open: { term: Terminal; close(): void } | undefined;
  #target: (Searched & { selected(): string }) | undefined;

  constructor() {
    byId('earlier-bar').prepend(this.#search.element);
    byId('earlier-find', HTMLButtonElement).addEventListener('click', () => this.#find());
    this.#dialog.addEventListener('close', () => this.#end());
    this.#dialog.addEventListener('keydown', (event) => {
      if (shortcut(event) !== 'find') return;
      event.preventDefault();
      event.stopPropagation();
      this.#find();
    });
  }

  // show reads part's end, and more of it when the person asks.
  async show(title: string, part: LogPart, cols: number, read: Load): Promise<void> {
    this.#end();
    setText('earlier-title', title);
    setText('earlier-note', 'Reading…');
    setHidden(this.#more, true);
    const term = this.#make(cols);
    this.#dialog.showModal();
    term.open(this.#host);
    term.focus();
    this.#fit(term);
    byId('earlier-copy', HTMLButtonElement).onclick = () => {
      const text = term.getSelection() || textOf(term, 0);
      void copy(text).then((done) => setText('earlier-note', done ? 'Copied' : 'The browser does not let this page write the clipboard'));
    };
    const load = async (bytes: number): Promise<void> => {
      this.#more.disabled = true;
      try {
        const wanted = last(part, bytes);
        const got = await read(wanted);
        if (this.#open?.term !== term) return; // closed meanwhile
        term.reset();
        term.write(got.bytes);
        term.write(noCursor, () => term.scrollToBottom());
        setText('earlier-note', note(wanted, got));
        setHidden(this.#more, got.from > wanted.from || wanted.from <= part.from || bytes >= mostBytes);
        this.#more.onclick = () => void load(bytes * 4);
      } catch (error) {
        setText('earlier-note', messageOf(error));
      } finally {
        this.#more.disabled = false;
      }
    };
    await load(pieceBytes);
  }

  #make(cols: number): Terminal {
    const term = new Terminal({ ...looks(), cols, rows: 24, cursorInactiveStyle: 'none', disableStdin: true, scrollback });
    const finder = new Finder(term, (index, count) => this.#search.found(index, count));
    term.loadAddon(new UnicodeGraphemesAddon());
    silence(term.parser);
    bound(term.parser);
    const refit = new ResizeObserver(() => this.#fit(term));
    refit.observe(this.#host);
    const closed = new AbortController();
    scrollByTouch(this.#host, closed.signal);
    term.attachCustomKeyEventHandler((event) => {
      if (shortcut(event) !== 'copy') return event.key !== 'Escape';
      event.preventDefault();
      if (event.type === 'keydown' && term.hasSelection()) void copy(term.getSelection());
      return false;
    });
    this.#target = {
      find: (query, back, still) => finder.find(query, back, still),
      endFind: () => finder.end(),
      focus: () => term.focus(),
      selected: () => term.getSelection(),
    };
    this.#open = {
      term,
      close: () => {
        closed.abort();
        refit.disconnect();
        term.dispose();
      },
    };
    return term;
  }

  #find(): void {
    if (this.#target !== undefined) this.#search.open(this.#target, this.#target.selected());
  }

  // fit gives the terminal the rows that the dialog has room for; its columns
  // are those that the output was printed for.
  #fit(term: Terminal): void {
    const row = this.#host.querySelector('.xterm-screen')?.getBoundingClientRect().height ?? 0;
    if (row === 0) return;
    const rows = Math.max(Math.floor(this.#host.clientHeight / (row / term.rows)), 4);
    if (rows !== term.rows) term.resize(term.cols, rows);
  }

  #end(): void {
    this.#search.close();
    this.#target = undefined;
    this.#open?.close();
    this.#open = undefined;
    this.#host.replaceChildren();
  }
}

// note says what is shown and what is missing.
function note(wanted: LogPart, got: { from: number; bytes: Uint8Array }): string {
  if (got.bytes.length === 0) return 'The sandbox no longer has this output.';
  const size = `${Math.max(1, Math.round(got.bytes.length / 1024))} KiB`;
  return got.from > wanted.from ? `${size}; the sandbox no longer has what was before.` : size;
}
