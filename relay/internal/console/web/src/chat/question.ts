// Draws what a coding agent asks: whether it may use a tool, or which of some
// choices it is to take.

import type { Item } from '@fairlead/core';
import { rulesOf } from '../approvals/tool.ts';
import { h, setAttribute, setHidden, setText } from '../ui/dom.ts';
import { visible } from '../ui/visible.ts';
import { plain } from './markdown.ts';
import { answered, leftOf } from './model.ts';
import { answerOf, choicesOf, problemOf, useOf, type Choice } from './tools.ts';
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

// What a question's row needs of the page.
export interface QuestionHooks {
  answer(answer: Answer): boolean; // whether it was sent
  around(change: () => void): boolean; // a change of the row's height; whether the end stays in view
  once?: boolean; // it can be allowed or denied, and no more be said
}

export interface Asking {
  you: string;
  mayApprove: boolean;
  name(id: string): string;
  why?: string; // somebody who may approve can't answer here
}

// A question that has just come into view has no buttons for this long: what was
// below the pointer until then may have been something else.
const guardMs = 500;

export class QuestionRow {
  readonly #left = h('span', { class: 'fine', 'data-testid': 'chat-left' });
  readonly #outcome = h('p', { class: 'fine', role: 'status', 'data-testid': 'chat-outcome' });
  readonly #problem = h('p', { class: 'problem', role: 'alert', 'data-testid': 'chat-answer-problem' });
  readonly #form = h('form', { class: 'chat-answer' });
  readonly #reason = h('input', { type: 'text', autocomplete: 'off', 'aria-label': 'Why not, for the agent', 'data-testid': 'chat-reason', placeholder: 'Why not (optional)', maxlength: '2000' });
  readonly #body = h('div'); // what a tool is to do; its use shows that too
  #asked: Asked | undefined;
  #answered = false;
  #guarded = false;
  #seen: IntersectionObserver | undefined;

  constructor(private readonly element: HTMLElement, private readonly hooks: QuestionHooks) {
    this.#form.addEventListener('submit', (event) => event.preventDefault());
    this.#form.addEventListener('input', () => setText(this.#problem, ''));
    this.guard();
  }

  draw(asked: Asked, { you, mayApprove, name, why = 'Somebody who may approve has to answer.' }: Asking): void {
    const first = this.#asked === undefined;
    this.#asked = asked;
    if (first) this.#build(asked);
    const open = asked.state === 'open';
    setAttribute(this.element, 'data-state', asked.state);
    setHidden(this.#form, !open || !mayApprove || this.#answered);
    setHidden(this.#left, !open);
    setHidden(this.#body, !open);
    if (!open) this.#answered = false;
    setText(this.#outcome, this.#answered ? 'Answering…' : open ? (mayApprove ? '' : why) : answered(asked, you, (id) => visible(name(id))));
    this.tick(Date.now());
  }

  tick(now: number): void {
    if (this.#asked === undefined) return;
    const left = leftOf(this.#asked, now);
    setText(this.#left, left === undefined ? '· waits for an answer' : `· ${left} s left`);
  }

  // unanswered: an answer that was given may be lost.
  unanswered(): void {
    this.#answered = false;
  }

  // guard takes the buttons away until the person has seen the question for a
  // moment. Whoever uses them at present keeps them.
  guard(): void {
    if (this.element.matches(':focus-within')) return;
    let timer: number | undefined;
    this.#seen?.disconnect();
    this.#seen = new IntersectionObserver((entries) => {
      clearTimeout(timer);
      if (entries.at(-1)?.isIntersecting === true) timer = window.setTimeout(() => this.#reveal(), guardMs);
    });
    this.#seen.observe(this.#form);
    this.#guard(true);
  }

  #reveal(): void {
    if (!this.hooks.around(() => this.#guard(false))) this.#form.scrollIntoView({ block: 'nearest' });
  }

  #guard(on: boolean): void {
    if (!on) this.#seen?.disconnect();
    this.#guarded = on;
    for (const button of this.#form.querySelectorAll('button')) setHidden(button, on);
  }

  #build(asked: Asked): void {
    const choices = choicesOf(asked.tool, asked.input);
    const body = choices.length > 0 ? [] : useParts(useOf(asked.input));
    this.#body.replaceChildren(...body);
    this.#form.replaceChildren(...(choices.length > 0 ? this.#choose(choices) : this.#decide(asked)));
    setAttribute(this.element, 'aria-label', titleOf(asked));
    this.element.replaceChildren(h('p', { class: 'who' }, choices.length > 0 ? 'The agent asks' : titleOf(asked), ' ', this.#left), this.#body, this.#form, this.#outcome);
    this.#guard(this.#guarded);
  }

  #decide(asked: Asked): Node[] {
    if (this.hooks.once === true) return [this.#button('Allow', 'btn-chat-allow', 'button small primary', () => ({ allow: true })), this.#button('Deny', 'btn-chat-deny', 'button small', () => ({ allow: false }))];
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
      this.#problem,
      this.#button('Answer', 'btn-chat-answer', 'button small primary', () => {
        const data = new FormData(this.#form);
        const answers = choices.map((_, i) => answerOf(data.getAll(`q${i}`).map(String), String(data.get(`other${i}`) ?? '')));
        const missing = answers.indexOf('');
        if (missing >= 0) {
          setText(this.#problem, problemOf(choices, missing));
          fields[missing]?.querySelector('input')?.focus();
          return undefined;
        }
        return { allow: true, updatedInput: { ...(this.#asked?.input as object), answers: Object.fromEntries(choices.map(({ question }, i) => [question, answers[i]])) } };
      }),
      this.#button('Don’t answer', 'btn-chat-deny', 'button small', () => ({ allow: false })),
    ];
  }

  #button(label: string, testid: string, look: string, say: () => Omit<Answer, 'question'> | undefined): HTMLButtonElement {
    const button = h('button', { class: look, type: 'button', 'data-testid': testid }, label);
    button.addEventListener('click', () => {
      const answer = this.#asked === undefined ? undefined : say();
      if (this.#asked === undefined || answer === undefined) return;
      this.#answered = this.hooks.answer({ question: this.#asked, ...answer });
      setHidden(this.#form, this.#answered);
      setText(this.#outcome, this.#answered ? 'Answering…' : 'Not connected: your answer was not sent.');
    });
    return button;
  }
}

// titleOf says what is asked.
export function titleOf({ tool, input }: Asked): string {
  const choices = choicesOf(tool, input);
  return choices.length > 0 ? `The agent asks: ${visible(choices.map(({ question }) => question).join(' '))}` : `May it use ${visible(tool)}?`;
}
