// Draws what a coding agent asks: whether it may use a tool, or which of some
// choices it is to take.

import type { Item } from '@fairlead/core';
import { rulesOf } from '../approvals/tool.ts';
import { h, setAttribute, setHidden, setText } from '../ui/dom.ts';
import { visible } from '../ui/visible.ts';
import { plain } from './markdown.ts';
import { leftOf } from './model.ts';
import { choicesOf, useOf, type Choice } from './tools.ts';
import { useParts } from './use.ts';

type Asked = Extract<Item, { kind: 'asked' }>;

// An Answer is what a person says to a question.
export interface Answer {
  question: Asked;
  allow: boolean;
  updatedInput?: unknown;
  message?: string;
  remember?: string;
}

const outcomes = { open: '', decided: 'Answered', timeout: 'Nobody answered in time', cancelled: 'Withdrawn' };

export class QuestionRow {
  readonly #left = h('span', { class: 'fine', 'data-testid': 'chat-left' });
  readonly #outcome = h('p', { class: 'fine', role: 'status' });
  readonly #form = h('form', { class: 'chat-answer' });
  readonly #reason = h('input', { type: 'text', autocomplete: 'off', 'aria-label': 'Why not, for the agent', placeholder: 'Why not (optional)', maxlength: '2000' });
  #asked: Asked | undefined;
  #answered = false;

  constructor(private readonly element: HTMLElement, private readonly answer: (answer: Answer) => void) {
    this.#form.addEventListener('submit', (event) => event.preventDefault());
  }

  draw(asked: Asked, mayApprove: boolean): void {
    const first = this.#asked === undefined;
    this.#asked = asked;
    if (first) this.#build(asked);
    setAttribute(this.element, 'data-state', asked.state);
    setHidden(this.#form, asked.state !== 'open' || !mayApprove || this.#answered);
    setHidden(this.#left, asked.state !== 'open');
    setText(this.#outcome, asked.state === 'open' && !mayApprove ? 'Somebody who may approve has to answer.' : outcomes[asked.state]);
    if (asked.state !== 'open') this.#answered = false;
    this.tick(Date.now());
  }

  tick(now: number): void {
    if (this.#asked === undefined) return;
    const left = leftOf(this.#asked, now);
    setText(this.#left, left === undefined ? '· waits for an answer' : `· ${left} s left`);
  }

  #build(asked: Asked): void {
    const choices = choicesOf(asked.tool, asked.input);
    const title = choices.length > 0 ? 'The agent asks' : `May it use ${visible(asked.tool)}?`;
    const body = choices.length > 0 ? [] : useParts(useOf(asked.input));
    this.#form.replaceChildren(...(choices.length > 0 ? this.#choose(choices) : this.#decide(asked)));
    this.element.replaceChildren(h('p', { class: 'who' }, title, ' ', this.#left), ...body, this.#form, this.#outcome);
  }

  #decide(asked: Asked): Node[] {
    const [rule] = rulesOf(asked.tool, asked.input);
    return [
      this.#button('Allow', 'btn-chat-allow', 'button small primary', () => ({ allow: true })),
      ...(rule === undefined ? [] : [this.#button(`Always: ${rule.text}`, 'btn-chat-always', 'button small', () => ({ allow: true, remember: rule.entry }))]),
      this.#button('Deny', 'btn-chat-deny', 'button small', () => ({ allow: false, ...(this.#reason.value === '' ? {} : { message: this.#reason.value }) })),
      this.#reason,
    ];
  }

  // choose is a form of the questions; the answers go back in the tool's input.
  #choose(choices: Choice[]): Node[] {
    const fields = choices.map(({ question, several, options }, i) => h('fieldset', {}, h('legend', {}, plain(question)),
      ...options.map(({ label, description }) => h('label', {},
        h('input', { type: several ? 'checkbox' : 'radio', name: `q${i}`, value: label }), ' ', h('b', {}, plain(label)), ' ', h('span', { class: 'fine' }, plain(description)))),
      h('input', { type: 'text', name: `other${i}`, autocomplete: 'off', 'aria-label': 'Another answer', placeholder: 'Another answer' })));
    return [
      ...fields,
      this.#button('Answer', 'btn-chat-answer', 'button small primary', () => {
        const data = new FormData(this.#form);
        const answers = Object.fromEntries(choices.map(({ question }, i) => {
          const other = String(data.get(`other${i}`) ?? '').trim();
          return [question, [...data.getAll(`q${i}`).map(String), ...(other === '' ? [] : [other])].join(', ')];
        }));
        return { allow: true, updatedInput: { ...(this.#asked?.input as object), answers } };
      }),
      this.#button('Don’t answer', 'btn-chat-deny', 'button small', () => ({ allow: false })),
    ];
  }

  #button(label: string, testid: string, look: string, say: () => Omit<Answer, 'question'>): HTMLButtonElement {
    const button = h('button', { class: look, type: 'button', 'data-testid': testid }, label);
    button.addEventListener('click', () => {
      if (this.#asked === undefined) return;
      this.#answered = true;
      setHidden(this.#form, true);
      setText(this.#outcome, 'Answering…');
      this.answer({ question: this.#asked, ...say() });
    });
    return button;
  }
}
