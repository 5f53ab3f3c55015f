// Uploads and downloads on their way, and those that failed.

import { byId, h, icon, setHidden, setText } from '../ui/dom.ts';
import { size } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';

const doneMs = 4_000; // how long a success is shown

// Whoever leaves the page while something is under way is asked.
let running = 0;
window.addEventListener('beforeunload', (event) => {
  if (running > 0) event.preventDefault();
});

export class Transfer {
  readonly element: HTMLElement;
  readonly #title = h('span', { class: 'transfer-title', role: 'status' });
  readonly #detail = h('span', { class: 'fine transfer-detail' });
  readonly #bar = h('progress', { max: '1000' });
  readonly #button: HTMLButtonElement;
  readonly #stop = new AbortController();
  readonly #verb: string;
  #over = false;
  #waiting = false;
  #bytes = { done: 0, total: 0 };
  #name = '';

  constructor(kind: 'upload' | 'download', label: string) {
    this.#verb = kind === 'upload' ? 'Uploading' : 'Downloading';
    this.#button = h('button', { class: 'plain', type: 'button', 'data-testid': `btn-${kind}-cancel`, title: 'Cancel', 'aria-label': `Cancel: ${label}` }, icon('close'));
    this.#button.addEventListener('click', () => {
      if (this.#over) this.element.remove();
      else this.#stop.abort(new DOMException('cancelled', 'AbortError'));
    });
    this.element = h('li', { class: 'transfer', 'data-testid': `${kind}-progress` }, h('div', { class: 'transfer-words' }, this.#title, this.#detail), this.#bar, this.#button);
    this.#bar.setAttribute('aria-label', label);
    setText(this.#title, `${this.#verb} ${label}`);
    running++;
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  // progress: a total of 0 isn't known.
  progress(done: number, total: number, name = ''): void {
    this.#bytes = { done, total };
    this.#name = name;
    this.#draw();
  }

  waiting(waiting: boolean): void {
    this.#waiting = waiting;
    this.#draw();
  }

  // succeed says what was done, and goes away.
  succeed(text: string): void {
    this.#end(text, '');
    setTimeout(() => this.element.remove(), doneMs);
  }

  // fail stays until it is dismissed.
  fail(text: string, why: string): void {
    this.#detail.setAttribute('role', 'alert'); // while it moved nobody would have heard the end of it
    this.#end(text, why);
    this.element.classList.add('failed');
  }

  cancelled(): void {
    this.succeed('Cancelled');
  }

  #end(text: string, detail: string): void {
    this.#over = true;
    running--;
    setText(this.#title, text);
    setText(this.#detail, detail);
    setHidden(this.#bar, true);
    this.#button.title = 'Dismiss';
    this.#button.setAttribute('aria-label', `Dismiss: ${text}`);
  }

  #draw(): void {
    if (this.#over) return;
    const { done, total } = this.#bytes;
    if (total > 0) this.#bar.value = Math.floor((done / total) * 1000);
    const amount = total > 0 ? `${size(done)} of ${size(total)}` : size(done);
    setText(this.#detail, this.#waiting ? `${amount} · Waiting for a connection, then it goes on` : [amount, visible(this.#name)].filter((s) => s !== '').join(' · '));
  }
}

// show adds a transfer to the list.
export function show(transfer: Transfer): void {
  byId('files-transfers').append(transfer.element);
}
