// Draws the Chat tab: the sandbox's browser tabs, what was said in the one that
// is shown, and what can be done about a message that didn't arrive.

import { markdown, plain } from '@fairlead/console/chat/markdown.ts';
import { byId, h, keyed, setAttribute, setHidden, setText } from '@fairlead/console/ui/dom.ts';
import { visible } from '@fairlead/console/ui/visible.ts';
import type { BrowserTab, Feed } from './feed.ts';
import type { Conversations, Row, Tab } from './model.ts';

export interface ChatActions {
  show(id: number): void;
  again(row: Row): void;
  drop(row: Row): void;
}

const failed = (row: Row): boolean => row.sending === 'refused' || row.sending === 'lost';

// nearEndPx is how far from the end one may be to be taken along.
const nearEndPx = 60;

export class ChatView {
  readonly #tabs = byId('chat-tabs');
  readonly #rows = byId('chat-rows');
  readonly #scroll = byId('chat-scroll');
  #drawn = new WeakMap<HTMLElement, string>();
  #shown = -1;

  constructor(private readonly actions: ChatActions) {}

  draw({ chat, tabs }: Feed): void {
    const { shown } = chat;
    const follows = this.#shown !== shown.id || this.#scroll.scrollHeight - this.#scroll.scrollTop - this.#scroll.clientHeight < nearEndPx;
    this.#shown = shown.id;
    this.#drawTabs(chat, tabs);
    keyed(this.#rows, shown.rows, ({ key }) => `${shown.id} ${key}`, () => h('li'), (element, row) => this.#row(element, row));
    setHidden('chat-empty', shown.rows.length > 0);
    setHidden('chat-cut', !shown.cut);
    setHidden('chat-dots', !chat.thinking(shown));
    setText('chat-dots-text', shown.hung ? 'No sign of life for five minutes' : 'Claude is working');
    byId('chat').dataset.working = String(shown.working);
    setHidden('chat-stop', !chat.thinking(shown));
    if (follows) this.#scroll.scrollTop = this.#scroll.scrollHeight;
  }

  #drawTabs(chat: Conversations, tabs: BrowserTab[]): void {
    // What is talked about in a tab that is gone can still be read.
    const listed: { id: number; name: string; url: string }[] = tabs.map(({ id, title, url }) => ({ id, name: name(id, title, url), url }));
    if (!tabs.some(({ id }) => id === chat.shown.id)) listed.unshift({ id: chat.shown.id, name: chat.shown.id === 0 ? 'No tab' : `Tab ${chat.shown.id}`, url: '' });
    setHidden(this.#tabs, listed.length < 2 && chat.shown.id === 0);
    keyed(this.#tabs, listed, ({ id }) => String(id), ({ id }) => this.#chip(id), (element, { id, name, url }) => {
      const tab: Tab = chat.tab(id);
      const label = element.querySelector('.chip-name') ?? element;
      setText(label, name);
      setAttribute(element, 'title', url === '' ? null : visible(url));
      setAttribute(element, 'aria-pressed', String(id === chat.shown.id));
      setAttribute(element, 'data-tone', chat.thinking(tab) ? 'busy' : tab.unread ? 'good' : null);
    });
  }

  #chip(id: number): HTMLElement {
    const chip = h('button', { class: 'chip', type: 'button', 'data-testid': `chat-tab-${id}` }, h('span', { class: 'dot', 'aria-hidden': 'true' }), h('span', { class: 'chip-name' }));
    chip.addEventListener('click', () => this.actions.show(id));
    return chip;
  }

  #row(element: HTMLElement, row: Row): void {
    const looks = JSON.stringify(row);
    if (this.#drawn.get(element) === looks) return;
    this.#drawn.set(element, looks);
    element.className = 'chat-row';
    element.dataset.kind = row.kind;
    element.dataset.testid = `row-${row.kind}`;
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
      case 'question':
        return [h('p', {}, 'Claude asks whether it may use ', h('b', {}, visible(row.tool ?? '')), ': ', h('code', {}, visible(row.text)), '. Who may approve answers in the console.')];
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

function name(id: number, title: string, url: string): string {
  if (title.trim() !== '') return visible(title);
  try {
    return new URL(url).host || `Tab ${id}`;
  } catch {
    return `Tab ${id}`;
  }
}
