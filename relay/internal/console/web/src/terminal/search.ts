// The bar that looks for text in a terminal.

import { h, icon, setText } from '../ui/dom.ts';

export interface Query {
  text: string;
  caseSensitive: boolean;
  regex: boolean;
}

export interface Searched {
  find(query: Query, back: boolean, still: boolean): void;
  endFind(): void;
  focus(): void;
}

// summary says how many matches there are and which one is shown.
export function summary(text: string, index: number, count: number): string {
  if (text === '') return '';
  if (count === 0) return 'No matches';
  return index < 0 ? `${count}+` : `${index + 1} of ${count}`;
}

// valid reports whether text can be looked for.
export function valid({ text, regex }: Query): boolean {
  if (!regex) return true;
  try {
    new RegExp(text);
    return true;
  } catch {
    return false;
  }
}

export class SearchBar {
  readonly element: HTMLElement;
  readonly #input = h('input', { type: 'text', 'aria-label': 'Find in the terminal', placeholder: 'Find', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', 'data-testid': 'search-input' });
  readonly #count = h('span', { class: 'count', role: 'status', 'data-testid': 'search-count' });
  readonly #case = toggle('Aa', 'Match case', 'search-case');
  readonly #regex = toggle('.*', 'Regular expression', 'search-regex');
  #target: Searched | undefined;

  constructor() {
    this.element = h('div', { class: 'search', role: 'search', 'data-testid': 'search' },
      this.#input, this.#count, this.#case, this.#regex,
      this.#button('up', 'Previous match (Shift+Enter)', 'search-previous', () => this.#find(true, false)),
      this.#button('down', 'Next match (Enter)', 'search-next', () => this.#find(false, false)),
      this.#button('close', 'Close (Escape)', 'search-close', () => this.close()));
    this.element.hidden = true;
    this.#input.addEventListener('input', () => this.#find(false, true));
    for (const button of [this.#case, this.#regex]) {
      button.addEventListener('click', () => {
        button.setAttribute('aria-pressed', String(button.getAttribute('aria-pressed') !== 'true'));
        this.#find(false, true);
      });
    }
    this.element.addEventListener('keydown', (event) => this.#key(event));
  }

  get target(): Searched | undefined {
    return this.#target;
  }

  // open looks in target, at first for what is selected there.
  open(target: Searched, selected: string): void {
    if (this.#target !== target) this.#target?.endFind();
    this.#target = target;
    this.element.hidden = false;
    if (selected !== '' && !selected.includes('\n')) this.#input.value = selected;
    this.#input.focus();
    this.#input.select();
    this.#find(false, true);
  }

  // close gives the focus back to where the search was, unless back is false.
  close(back = true): void {
    const target = this.#target;
    if (target === undefined) return;
    this.#target = undefined;
    this.element.hidden = true;
    target.endFind();
    if (back) target.focus();
  }

  found(index: number, count: number): void {
    if (valid(this.#query)) setText(this.#count, summary(this.#input.value, index, count));
  }

  get #query(): Query {
    return {
      text: this.#input.value,
      caseSensitive: this.#case.getAttribute('aria-pressed') === 'true',
      regex: this.#regex.getAttribute('aria-pressed') === 'true',
    };
  }

  #find(back: boolean, still: boolean): void {
    const query = this.#query;
    const ok = valid(query);
    this.#input.setAttribute('aria-invalid', String(!ok));
    if (!ok) return setText(this.#count, 'Not a regular expression');
    if (query.text === '') setText(this.#count, '');
    this.#target?.find(query, back, still);
  }

  #key(event: KeyboardEvent): void {
    if (event.key === 'Escape') this.close();
    else if (event.key === 'Enter' && event.target === this.#input) this.#find(event.shiftKey, false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #button(name: string, label: string, testid: string, press: () => void): HTMLElement {
    const button = h('button', { class: 'plain', type: 'button', 'aria-label': label, title: label, 'data-testid': testid }, icon(name));
    button.addEventListener('click', press);
    return button;
  }
}

function toggle(text: string, label: string, testid: string): HTMLElement {
  return h('button', { class: 'toggle', type: 'button', 'aria-label': label, title: label, 'aria-pressed': 'false', 'data-testid': testid }, text);
}
