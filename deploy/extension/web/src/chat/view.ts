// Draws the Chat tab: the sandbox's browser tabs, what was said in the one that
// is shown, and what can be done about a message that didn't arrive.

import { markdown, plain } from '@fairlead/console/chat/markdown.ts';
import { QuestionRow, titleOf } from '@fairlead/console/chat/question.ts';
import { byId, h, keyed, setAttribute, setHidden, setText } from '@fairlead/console/ui/dom.ts';
import { visible } from '@fairlead/console/ui/visible.ts';
import { asks, type Chip, type Conversations, type Row } from './model.ts';

export interface ChatActions {
  show(id: number): void;
  again(row: Row): void;
  drop(row: Row): void;
  answer(row: Row, allow: boolean): void;
}

export interface ChatPerson {
  id: string;
  mayApprove: boolean;
}

const failed = (row: Row): boolean => row.sending === 'refused' || row.sending === 'lost';

// nearEndPx is how far from the end one may be to be taken along.
const nearEndPx = 60;

export class ChatView {
  readonly #tabs = byId('chat-tabs');
  readonly #rows = byId('chat-rows');
  readonly #scroll = byId('chat-scroll');
  readonly #elsewhere = byId('chat-elsewhere');
  #drawn = new WeakMap<HTMLElement, string>();
  #questions = new WeakMap<HTMLElement, QuestionRow>();
  #asked = new Map<string, Row>(); // those of the shown conversation's questions
  #shown = -1;
  #told = new Set<string>(); // questions that a screen reader was told of

  constructor(private readonly you: ChatPerson, private readonly actions: ChatActions) {}

  draw(chat: Conversations): void {
    const { shown } = chat;
    this.#around(this.#shown !== shown.id, () => {
      this.#shown = shown.id;
      this.#asked.clear();
      this.#drawTabs(chat.chips());
      keyed(this.#rows, shown.rows, ({ key }) => `${shown.id} ${key}`, (row) => this.#make(row), (element, row) => this.#row(element, row));
      setHidden('chat-empty', shown.rows.length > 0);
      setHidden('chat-cut', !shown.cut);
      setHidden('chat-dots', !chat.thinking(shown) || asks(shown) !== undefined);
      setText('chat-dots-text', shown.hung ? 'No sign of life for five minutes' : chat.taken(shown) ? 'Claude is working' : 'On its way to Claude');
      byId('chat').dataset.working = String(shown.working);
      setHidden('chat-stop', !chat.thinking(shown));
      this.#drawElsewhere(chat);
      this.#tell(chat);
    });
  }

  // shown: the conversation was not to be seen before.
  shown(): void {
    for (const question of this.#open()) question.guard();
  }

  tick(now: number): void {
    for (const question of this.#open()) question.tick(now);
  }

  // unanswered: an answer that was given is lost.
  unanswered(): void {
    for (const question of this.#open()) question.unanswered();
  }

  #open(): QuestionRow[] {
    return [...this.#rows.children].flatMap((element) => (element instanceof HTMLElement ? (this.#questions.get(element) ?? []) : []));
  }

  // around keeps the end in view, where it was before a change. It reports that.
  #around(always: boolean, change: () => void): boolean {
    const follows = always || this.#scroll.scrollHeight - this.#scroll.scrollTop - this.#scroll.clientHeight < nearEndPx;
    change();
    if (follows) this.#scroll.scrollTop = this.#scroll.scrollHeight;
    return follows;
  }

  #drawTabs(chips: Chip[]): void {
    setHidden(this.#tabs, chips.length < 2 && chips[0]?.id === 0);
    keyed(this.#tabs, chips, ({ id }) => String(id), ({ id }) => this.#chip(id), (element, chip) => {
      setText(element.querySelector('.chip-name') ?? element, name(chip));
      setText(element.querySelector('.hidden-label') ?? element, [chip.front ? ', in front in the sandbox' : '', news[chip.news]].join(''));
      setAttribute(element, 'title', [visible(chip.title), visible(chip.url), ...(chip.front ? ['In front in the sandbox'] : [])].filter((text) => text !== '').join('\n'));
      setAttribute(element, 'data-front', chip.front ? '' : null);
      setAttribute(element, 'aria-pressed', String(chip.shown));
      setAttribute(element, 'data-tone', tones[chip.news]);
    });
  }

  #chip(id: number): HTMLElement {
    const chip = h('button', { class: 'chip', type: 'button', 'data-testid': `chat-tab-${id}` }, h('span', { class: 'dot', 'aria-hidden': 'true' }), h('span', { class: 'chip-name' }), h('span', { class: 'hidden-label' }));
    chip.addEventListener('click', () => this.actions.show(id));
    return chip;
  }

  // What is asked in another tab has somebody wait there.
  #drawElsewhere(chat: Conversations): void {
    const { elsewhere } = chat;
    setHidden(this.#elsewhere, elsewhere === undefined);
    if (elsewhere === undefined) return;
    setText('chat-elsewhere-text', `Claude asks something in ${name(elsewhere)}.`);
    byId('chat-elsewhere-show').onclick = () => this.actions.show(elsewhere.id);
  }

  // tell has a screen reader say what is asked, once.
  #tell({ shown }: Conversations): void {
    const question = asks(shown);
    if (question === undefined) return setText('chat-news', '');
    if (this.#told.has(question.id)) return;
    this.#told.add(question.id);
    setText('chat-news', `${titleOf(question)} ${this.you.mayApprove ? 'F6 leads to the answers.' : 'Somebody who may approve has to answer.'}`);
  }

  // focusQuestion moves to the question that is open, if there is one.
  focusQuestion(): boolean {
    const open = this.#rows.querySelector<HTMLElement>(`[data-kind='question'][data-state='open']`);
    open?.focus();
    return open !== null;
  }

  #make(row: Row): HTMLElement {
    const element = h('li', { class: 'chat-row', 'data-kind': row.kind, 'data-testid': `row-${row.kind}` });
    if (row.question === undefined) return element;
    element.tabIndex = -1;
    this.#questions.set(element, new QuestionRow(element, {
      once: true,
      around: (change) => this.#around(false, change),
      answer: ({ question: { id }, allow }) => this.#answer(id, allow),
    }));
    return element;
  }

  #answer(id: string, allow: boolean): boolean {
    const row = this.#asked.get(id);
    if (row !== undefined) this.actions.answer(row, allow);
    return row !== undefined;
  }

  #row(element: HTMLElement, row: Row): void {
    if (row.question !== undefined) {
      this.#asked.set(row.question.id, row);
      const elsewhere = row.part === true || row.tool === 'AskUserQuestion'; // all of it is to be seen there, or written
      this.#questions.get(element)?.draw(row.question, {
        you: this.you.id, mayApprove: this.you.mayApprove && !elsewhere, name: (id) => `Somebody else (${id})`,
        ...(elsewhere && this.you.mayApprove ? { why: 'This is answered in the console.' } : {}),
      });
      return;
    }
    const looks = JSON.stringify(row);
    if (this.#drawn.get(element) === looks) return;
    this.#drawn.set(element, looks);
    setAttribute(element, 'data-sending', row.sending ?? null);
    setAttribute(element, 'data-live', row.live === true ? '' : null);
    element.replaceChildren(...this.#content(row));
  }

  #content(row: Row): Node[] {
    switch (row.kind) {
      case 'user':
        return [h('p', { class: 'plain-text' }, plain(row.text)), ...this.#fate(row)];
      case 'text':
        return [h('div', { class: 'text' }, ...markdown(row.text))];
      case 'tool':
        return [h('p', { class: 'used' }, h('b', {}, visible(row.tool ?? '')), ' ', h('code', {}, visible(row.text)))];
      default:
        return [h('p', {}, visible(row.text))];
    }
  }

  // fate is what became of a message that isn't in the conversation yet.
  #fate(row: Row): Node[] {
    if (row.sending === undefined || row.sending === 'working') return [];
    const text = h('span', { class: 'fine' }, row.sending === 'sending' ? 'Sending' : visible(row.note ?? ''));
    if (!failed(row)) return [text];
    const again = h('button', { class: 'link', type: 'button', 'data-testid': 'chat-again' }, 'Send again');
    const drop = h('button', { class: 'link', type: 'button', 'data-testid': 'chat-drop' }, 'Drop');
    again.addEventListener('click', () => this.actions.again(row));
    drop.addEventListener('click', () => this.actions.drop(row));
    return [h('span', { class: 'fate' }, text, again, drop)];
  }
}

const tones: Record<Chip['news'], string | null> = { '': null, busy: 'busy', asks: 'bad', unread: 'good' };
const news: Record<Chip['news'], string> = { '': '', busy: ', at work', asks: ', asks something', unread: ', has news' };

function name({ id, title, url }: { id: number; title: string; url: string }): string {
  if (title.trim() !== '') return visible(title);
  try {
    return new URL(url).host || `Tab ${id}`;
  } catch {
    return id === 0 ? 'No tab' : `Tab ${id}`;
  }
}
