// What a card about a coding agent's tool has more than others: what the tool is
// to do, and answers that say more than yes or no. All of it is text.

import { h, setAttribute, setHidden, setText } from '../ui/dom.ts';
import type { CardView, Decision, Words } from './approvals.ts';
import type { Part, ToolView } from './tool.ts';

// The longest reason, in UTF-16 units: each has at most 3 bytes, and the sandbox
// takes 4 KiB.
const longestReason = 1_300;

export class ToolCard {
  readonly input = h('div', { class: 'tool-input', tabindex: '0', role: 'group', 'aria-label': 'What it is to do' });
  readonly choices: HTMLElement;
  #shown: ToolView | null = null; // as it is drawn
  readonly #rule: HTMLSelectElement;
  readonly #where: HTMLSelectElement;
  readonly #reason: HTMLInputElement;
  readonly #always: HTMLDetailsElement;
  readonly #note: HTMLElement;
  readonly #buttons: HTMLElement[];

  constructor(id: string, decide: (decision: Decision, words: Words) => void) {
    this.#rule = h('select', { 'aria-label': 'What needs no question any more', 'data-testid': `rule-of-${id}` });
    this.#where = h('select', { 'aria-label': 'For how long', 'data-testid': `rule-where-${id}` },
      h('option', { value: 'allow_once' }, 'in this run'), h('option', { value: 'allow_always' }, 'in this session'));
    const allow = h('button', { class: 'button small', type: 'submit', 'data-testid': `btn-allow-always-${id}` }, 'Allow, and don’t ask again');
    const rules = h('form', {}, this.#rule, this.#where, allow);
    rules.addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.#rule.value !== '') decide(this.#where.value === 'allow_always' ? 'allow_always' : 'allow_once', { remember: this.#rule.value });
    });
    this.#always = h('details', { class: 'tool-always' }, h('summary', { 'data-testid': `always-${id}` }, 'Always…'), rules);

    this.#reason = h('input', { type: 'text', maxlength: String(longestReason), placeholder: 'Why not? The coding agent reads it', 'aria-label': 'Why not', autocomplete: 'off', 'data-testid': `reason-${id}` });
    const deny = h('button', { class: 'button small', type: 'submit', 'data-testid': `btn-deny-reason-${id}` }, 'Deny');
    const reasons = h('form', {}, this.#reason, deny);
    reasons.addEventListener('submit', (event) => {
      event.preventDefault();
      const message = this.#reason.value.trim();
      decide('deny', message === '' ? {} : { message });
    });
    const why = h('details', {}, h('summary', { 'data-testid': `why-${id}` }, 'Deny with a reason…'), reasons);
    this.#note = h('p', { class: 'fine' }, 'It is answered in the conversation.');
    this.#buttons = [allow, deny];
    this.choices = h('div', { class: 'tool-choices' }, this.#note, this.#always, why);
  }

  draw(card: CardView, guarded: boolean): void {
    setHidden(this.choices, !card.pending);
    setHidden(this.input, !card.pending || card.tool === null || card.tool.parts.length === 0);
    for (const button of this.#buttons) {
      setAttribute(button, 'aria-disabled', card.busy ? 'true' : null);
      setHidden(button, guarded);
    }
    if (card.tool === null || card.tool === this.#shown || !card.pending) return;
    this.#shown = card.tool;
    this.input.replaceChildren(...card.tool.parts.map(partElement));
    this.#rule.replaceChildren(...card.tool.rules.map(({ entry, text }) => h('option', { value: entry }, text)));
    setHidden(this.#always, card.tool.rules.length === 0);
    setHidden(this.#note, !card.tool.answered);
  }
}

function partElement({ label, lines }: Part): HTMLElement {
  const text = h('pre', {}, ...lines.map(({ sign, text: line }) => {
    const element = h('bdi', { class: 'tool-line', dir: 'ltr', ...(sign === '' ? {} : { 'data-sign': sign }) });
    setText(element, sign === '' ? line : `${sign} ${line}`);
    return element;
  }));
  return h('div', { class: 'tool-part' }, ...(label === '' ? [] : [h('span', { class: 'fine' }, label)]), text);
}
