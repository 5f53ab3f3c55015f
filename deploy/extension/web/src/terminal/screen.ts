// The panel's xterm.js: the console's colours, and like there no answers of its
// own, since the sandbox gives them.

import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import { bound } from '@fairlead/console/terminal/limits.ts';
import { automatic, silence } from '@fairlead/console/terminal/replies.ts';
import '@fairlead/console/ui/adopted-style.ts';
import { lightPreferred, looks, stillPreferred, theme } from '@fairlead/console/ui/theme.ts';
import type { Size } from './terminal.ts';

const scrollbackLines = 5_000;

export class Screen {
  readonly #term: Terminal;
  readonly #fit = new FitAddon();

  constructor(private readonly host: HTMLElement, typed: (data: string) => void, resized: () => void) {
    this.#term = new Terminal({ ...looks(), cursorBlink: !stillPreferred.matches, cursorInactiveStyle: 'outline', scrollback: scrollbackLines });
    this.#term.loadAddon(this.#fit);
    silence(this.#term.parser);
    bound(this.#term.parser);
    this.#term.open(host);
    this.#term.textarea?.setAttribute('aria-label', 'Terminal. F6 leaves it.');
    this.#term.onData((data) => {
      if (!automatic(data)) typed(data);
    });
    this.#term.onBinary(typed);
    this.#term.onResize(resized);
    this.#term.attachCustomKeyEventHandler((event) => {
      if (event.key !== 'F6') return true;
      if (event.type === 'keydown') document.querySelector<HTMLElement>('[role=tab][aria-selected=true]')?.focus();
      return false;
    });
    new ResizeObserver(() => this.fit()).observe(host);
    lightPreferred.addEventListener('change', () => (this.#term.options.theme = theme()));
  }

  get size(): Size {
    return { cols: this.#term.cols, rows: this.#term.rows };
  }

  fit(): void {
    if (this.host.clientWidth > 0) this.#fit.fit();
  }

  write(bytes: Uint8Array): void {
    this.#term.write(bytes);
  }

  reset(): void {
    this.#term.reset();
  }

  focus(): void {
    this.#term.focus();
  }

  // text is all that it holds.
  text(): string {
    const { active } = this.#term.buffer;
    return Array.from({ length: active.length }, (_, y) => active.getLine(y)?.translateToString(true) ?? '').join('\n').trimEnd();
  }
}
