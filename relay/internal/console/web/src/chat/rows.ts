// Draws the items of a conversation. A row that has not changed is left alone, so
// that what is folded out, selected or focused stays.

import type { Image, Item, Outgoing } from '@fairlead/core';
import { h, keyed, setAttribute, setHidden, setText } from '../ui/dom.ts';
import { visible } from '../ui/visible.ts';
import { markdown, plain } from './markdown.ts';
import { QuestionRow, type Answer, type Asking } from './question.ts';
import { useOf } from './tools.ts';
import { useParts } from './use.ts';

export interface RowActions {
  answer(answer: Answer): boolean; // whether it was sent
  retry(message: Outgoing): void;
  drop(message: Outgoing): void;
}

// A Row is an item, or a message that is on its way.
export type Row = Item | { kind: 'outgoing'; id: string; message: Outgoing; waits: string }; // waits: why it is not sent yet, '' if it is

export interface RowsState extends Asking {
  rows: Row[];
}

// Output longer than this is cut until the person asks for it.
const foldChars = 4_000;

export class Rows {
  readonly #drawn = new WeakMap<HTMLElement, Row>();
  #news: HTMLElement | undefined; // a question that is drawn for the first time
  readonly #questions = new WeakMap<HTMLElement, QuestionRow>();

  readonly #box: HTMLElement; // scrolls
  #end = true; // the end is in view, as the person has it
  #height = 0; // of the box, as far as that was looked after

  constructor(private readonly list: HTMLElement, private readonly actions: RowActions) {
    this.#box = list.parentElement ?? list;
    // An event of our own scrolling may come when the box has just become smaller:
    // that isn't the person leaving the end.
    this.#box.addEventListener('scroll', () => {
      if (this.#box.clientHeight === this.#height) this.#end = this.#atEnd();
    });
    new ResizeObserver(() => { // what stands below takes of its room
      this.#height = this.#box.clientHeight;
      if (this.#end) this.#toEnd();
    }).observe(this.#box);
  }

  // draw shows the rows, and keeps the newest in view where it was. A new question
  // comes into view: somebody waits for its answer.
  draw(state: RowsState): void {
    const atEnd = this.#around(() => keyed(this.list, state.rows, keyOf, (row) => this.#make(row), (element, row) => this.#draw(element, row, state)));
    if (!atEnd && state.mayApprove) this.#news?.scrollIntoView({ block: 'nearest' });
    this.#news = undefined;
  }

  // around keeps the end in view, where it was before a change. It reports that.
  #around(change: () => void): boolean {
    const atEnd = this.#atEnd();
    change();
    if (atEnd) this.#toEnd();
    return atEnd;
  }

  #atEnd(): boolean {
    return this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight < 40;
  }

  #toEnd(): void {
    this.#box.scrollTop = this.#box.scrollHeight;
  }

  // shown: the rows were not to be seen before.
  shown(): void {
    for (const question of this.#asked()) question.guard();
  }

  // unanswered: answers that were given may be lost.
  unanswered(): void {
    for (const question of this.#asked()) question.unanswered();
  }

  #asked(): QuestionRow[] {
    return [...this.list.children].flatMap((element) => (element instanceof HTMLElement ? (this.#questions.get(element) ?? []) : []));
  }

  // tick shows how much time is left.
  tick(now: number): void {
    for (const question of this.#asked()) question.tick(now);
  }

  // focusQuestion moves to the first question that is open, if there is one.
  focusQuestion(): boolean {
    const open = this.list.querySelector<HTMLElement>(`.chat-asked[data-state='open']`);
    open?.focus();
    return open !== null;
  }

  #make(row: Row): HTMLElement {
    const element = h('li', { class: `chat-row chat-${row.kind}`, 'data-testid': `chat-${row.kind}` });
    if (row.kind !== 'asked') return element;
    element.tabIndex = -1;
    this.#news = element;
    this.#questions.set(element, new QuestionRow(element, { answer: this.actions.answer, around: (change) => this.#around(change) }));
    return element;
  }

  #draw(element: HTMLElement, row: Row, state: RowsState): void {
    if (row.kind === 'asked') {
      this.#questions.get(element)?.draw(row, state);
      return;
    }
    if (same(this.#drawn.get(element), row)) return;
    this.#drawn.set(element, row);
    switch (row.kind) {
      case 'said':
        this.#said(element, row, state);
        return;
      case 'outgoing':
        this.#outgoing(element, row);
        return;
      case 'thought':
        element.replaceChildren(fold('Thinking', [h('div', { class: 'text' }, ...markdown(row.text))]));
        return;
      case 'used':
        drawUse(element, row);
        return;
      case 'failed':
        element.replaceChildren(h('p', { class: 'problem', role: 'alert' }, plain(row.text)));
        return;
      case 'ended':
        setAttribute(element, 'data-outcome', row.aborted ? 'aborted' : 'failed');
        setText(element, row.aborted ? 'Stopped' : `Ended with code ${row.exitCode}`);
    }
  }

  #said(element: HTMLElement, row: Extract<Item, { kind: 'said' }>, { you, name }: RowsState): void {
    setAttribute(element, 'data-role', row.role);
    setAttribute(element, 'data-live', row.live ? 'true' : null);
    const who = row.role === 'assistant' ? [] : [h('p', { class: 'who' }, row.from === undefined ? 'Somebody' : row.from.userId === you ? 'You' : visible(row.from.name || name(row.from.userId)))];
    const images = imagesOf(row.images ?? []);
    const text = row.role === 'assistant' ? markdown(row.text) : [h('p', { class: 'plain-text' }, plain(row.text))];
    element.replaceChildren(...who, h('div', { class: 'text', dir: 'auto' }, ...text), ...images);
  }

  #outgoing(element: HTMLElement, { message, waits }: Extract<Row, { kind: 'outgoing' }>): void {
    const { refused } = message;
    const note = refused ?? (waits || 'Sending…');
    const buttons = [];
    if (refused !== undefined) buttons.push(button('Try again', 'btn-chat-retry', () => this.actions.retry(message)));
    if (refused !== undefined || waits !== '') buttons.push(button('Discard', 'btn-chat-drop', () => this.actions.drop(message)));
    element.replaceChildren(
      h('p', { class: 'who' }, 'You'), h('p', { class: 'plain-text' }, plain(message.content)), ...imagesOf(message.images),
      h('p', { class: refused === undefined ? 'fine' : 'problem', role: 'status' }, note, ' ', ...buttons),
    );
  }
}

const imagesOf = (images: readonly Image[]): Node[] => images.map(({ name }) => h('p', { class: 'fine' }, name === undefined || name === '' ? 'An image' : `Image: ${visible(name)}`));

// keyOf stays the same while a text becomes whole.
const keyOf = (row: Row): string => `${row.kind} ${(row.kind === 'said' ? row.key : undefined) ?? row.id}`;

// same reports whether a row shows what it did.
function same(before: Row | undefined, row: Row): boolean {
  if (row.kind !== 'outgoing' || before?.kind !== 'outgoing') return before === row;
  return before.message === row.message && before.waits === row.waits;
}

function button(label: string, testid: string, run: () => void): HTMLButtonElement {
  const element = h('button', { class: 'button small', type: 'button', 'data-testid': testid }, label);
  element.addEventListener('click', run);
  return element;
}

function fold(title: string, content: Node[], open = false): HTMLDetailsElement {
  return h('details', open ? { open: '' } : {}, h('summary', {}, title), ...content);
}

// drawUse shows a tool's use in one line; the rest is folded.
function drawUse(element: HTMLElement, row: Extract<Item, { kind: 'used' }>): void {
  const before = element.querySelector('details');
  const use = useOf(row.input);
  const state = row.output === undefined ? 'running' : row.output.isError ? 'failed' : 'done';
  setAttribute(element, 'data-state', state);
  const summary = h('summary', {}, h('b', { class: 'mono' }, visible(row.tool)), ' ', h('span', { class: 'fine' }, visible(use.title)),
    h('span', { class: 'hidden-label' }, state === 'running' ? ', at work' : state === 'failed' ? ', failed' : ', done'));
  const parts: Node[] = [...useParts(use)];
  if (row.output !== undefined) parts.push(output(row.output.content));
  const details = h('details', before?.open === true ? { open: '' } : {}, summary, ...parts);
  if (row.parent !== undefined) setAttribute(element, 'data-nested', 'true');
  element.replaceChildren(details);
}

// output shows the beginning of a long output, and all of it when asked.
function output(text: string): HTMLElement {
  const pre = h('pre', { class: 'code output', tabindex: '0', 'aria-label': 'Result' }, plain(text.slice(0, foldChars)));
  if (text.length <= foldChars) return pre;
  const more = button(`Show all ${text.length.toLocaleString()} characters`, 'btn-chat-all', () => {
    setText(pre, plain(text));
    setHidden(more, true);
  });
  return h('div', {}, pre, more);
}
