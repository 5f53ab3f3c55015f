// Draws the cards of what waits for a decision, in a corner of the terminal.
// None of them takes the focus, and none moves below the pointer.

import { byId, h, icon, keyed, setAttribute, setHidden, setText } from '../ui/dom.ts';
import type { CardView, Decision, Words } from './approvals.ts';
import { ToolCard } from './toolcard.ts';

export interface CardActions {
  decide(id: string, decision: Decision, words: Words): void;
  select(pty: string): void;
  converse?: ((conversation: string) => void) | undefined; // opens one
  changed(): void; // other cards are to be seen
  focus(): void; // moves to what is to be decided
  focusTerminal(): void;
}

const choices: { decision: Decision; testid: string; label: string; look: string }[] = [
  { decision: 'allow_once', testid: 'btn-allow-once', label: 'Allow once', look: 'button small primary' },
  { decision: 'allow_always', testid: 'btn-allow-always', label: 'Allow always', look: 'button small' },
  { decision: 'deny', testid: 'btn-deny', label: 'Deny', look: 'button small' },
  { decision: 'deny_always', testid: 'btn-deny-always', label: 'Deny always', look: 'button small' },
];

// A new card has no buttons for this long: terminals report the mouse, so a
// program may know where the next click goes and make a card appear there.
const guardMs = 500;

export class ApprovalCards {
  readonly #box = byId('approvals');
  readonly #list = byId('approvals-cards');
  readonly #count = byId('approvals-count', HTMLButtonElement);
  readonly #views = new Map<string, CardView>(); // as they are drawn
  readonly #tools = new WeakMap<Element, ToolCard>(); // of cards about tools
  readonly #said = new Set<string>(); // what a screen reader has announced
  readonly #folded = new Set<string>(); // the person wants to see them later

  constructor(private readonly actions: CardActions) {
    this.#count.addEventListener('click', () => {
      this.#folded.clear();
      actions.changed();
      actions.focus();
    });
    // The terminal keeps the focus, and a phone its keyboard.
    this.#list.addEventListener('pointerdown', (event) => {
      if (event.target instanceof Element && event.target.closest('button') !== null) event.preventDefault();
    });
    this.#list.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.preventDefault();
      actions.focusTerminal();
    });
  }

  // holds reports whether a card must stay where it is, since the person is
  // about to use one.
  holds(id: string): boolean {
    return this.#views.has(id) && (this.#list.matches(':focus-within') || (matchMedia('(hover: hover)').matches && this.#list.matches(':hover')));
  }

  // focus moves to the card that has waited for longest, if there is one.
  focus(): boolean {
    const oldest = [...this.#views.values()].find((card) => card.pending);
    const element = oldest === undefined ? undefined : this.#element(oldest.id);
    element?.focus();
    return element !== undefined;
  }

  // draw shows no card of what is asked elsewhere on the page, but has it read out.
  draw(all: CardView[], { count, connected, elsewhere }: { count: number; connected: boolean; elsewhere: ReadonlySet<string> }): void {
    const focused = this.#list.contains(document.activeElement) ? document.activeElement : null;
    for (const id of this.#folded) if (!all.some((card) => card.id === id)) this.#folded.delete(id);
    const cards = all.filter((card) => !this.#folded.has(card.id) && !elsewhere.has(card.id));
    this.#views.clear();
    for (const card of cards) this.#views.set(card.id, card);
    keyed(this.#list, cards, (card) => card.id, (card) => this.#make(card), (element, card) => this.#draw(element, card));
    setHidden(this.#box, cards.length === 0);
    setHidden('approvals-note', connected);
    setHidden(this.#count, count === 0 && connected);
    setAttribute(this.#count, 'data-tone', count > 0 ? 'ask' : 'lost');
    setText(this.#count, count > 0 ? `${count} ${count === 1 ? 'approval' : 'approvals'}` : 'No approvals: not connected');
    setAttribute(this.#count, 'data-short', count > 0 ? `● ${count}` : '!');
    this.#say(all);
    this.#keepFocus(focused);
  }

  // keepFocus: what had the focus may be hidden or gone now.
  #keepFocus(focused: Element | null): void {
    if (focused === null || (focused.isConnected && focused.getClientRects().length > 0)) return;
    if (!this.focus()) this.actions.focusTerminal();
  }

  // say tells a screen reader what is new, once.
  #say(cards: CardView[]): void {
    const news = cards.filter(({ id, pending }) => !this.#said.has(id + String(pending)));
    for (const { id, pending } of news) this.#said.add(id + String(pending));
    const last = news.at(-1);
    if (last !== undefined) setText('approvals-said', last.pending ? `${last.who} ${last.what} ${last.host}` : `${last.host}: ${last.outcome}`);
    if (this.#said.size <= 1000) return;
    for (const key of this.#said) {
      this.#said.delete(key);
      if (this.#said.size <= 500) break;
    }
  }

  #element(id: string): HTMLElement | undefined {
    return [...this.#list.children].find((child): child is HTMLElement => child instanceof HTMLElement && child.dataset.key === id);
  }

  #make({ id, tool }: CardView): HTMLElement {
    const who = h('button', { class: 'link', type: 'button' });
    who.addEventListener('click', () => {
      const card = this.#views.get(id);
      if (card?.pty) this.actions.select(card.pty);
      else if (card?.conversation) this.actions.converse?.(card.conversation);
    });
    const asked = h('p', { class: 'asked' }, h('span', { class: 'left', 'aria-hidden': 'true' }), who, h('b', {}), ' ', h('span', {}));
    const later = h('button', { class: 'plain', type: 'button', 'data-testid': `btn-later-${id}` }, icon('close'));
    later.addEventListener('click', () => {
      this.#folded.add(id);
      this.actions.changed();
    });
    const host = h('p', { class: 'to' }, h('bdi', { class: 'to-host', dir: 'ltr' }), h('span', { class: 'reads' }, 'reads as ', h('bdi', {})));
    const buttons = h('div', { class: 'decisions' });
    for (const { decision, testid, label, look } of choices) {
      if (tool !== null && (decision === 'allow_always' || decision === 'deny_always')) continue; // its card says more of these
      const button = h('button', { class: look, type: 'button', 'data-testid': `${testid}-${id}` }, label);
      button.addEventListener('click', () => this.actions.decide(id, decision, {}));
      buttons.append(button);
    }
    const bar = h('div', { class: 'time', 'aria-hidden': 'true' });
    const card = h('article', { class: 'approval', tabindex: '-1', 'data-since': String(performance.now()), 'data-testid': `approval-${id}` }, asked, host, h('p', { class: 'outcome' }), buttons, h('p', { class: 'trouble', role: 'status' }), bar, later);
    if (tool !== null) {
      const more = new ToolCard(id, (decision, words) => this.actions.decide(id, decision, words));
      host.after(more.input);
      buttons.after(more.choices);
      this.#tools.set(card, more);
    }
    return card;
  }

  #draw(element: HTMLElement, card: CardView): void {
    const tool = this.#tools.get(element);
    const [asked, to, outcome, buttons, trouble, bar, later] = ([...element.children] as HTMLElement[]).filter((child) => child !== tool?.input && child !== tool?.choices);
    if (!asked || !to || !outcome || !buttons || !trouble || !bar || !later) return;
    const [left, who, somebody, what] = [...asked.children] as HTMLElement[];
    const [host, reads] = [...to.children] as HTMLElement[];
    if (!who || !somebody || !what || !left || !host || !reads) return;
    setAttribute(element, 'data-tone', card.tone);
    setAttribute(element, 'aria-label', `${card.who} ${card.what} ${card.host}`);
    setText(who, card.who);
    const opens = card.pty !== '' ? 'Show this terminal' : card.conversation !== '' && this.actions.converse !== undefined ? 'Show this conversation' : null;
    setAttribute(who, 'title', opens);
    setHidden(who, opens === null);
    setText(somebody, card.who);
    setHidden(somebody, opens !== null);
    setText(what, card.what);
    setText(left, card.left);
    setText(host, card.host);
    setText(reads.lastElementChild ?? reads, card.reading);
    setHidden(reads, card.reading === '');
    setText(outcome, card.outcome);
    setHidden(outcome, card.pending);
    setHidden(buttons, !card.pending);
    const guarded = performance.now() - Number(element.dataset.since) < guardMs;
    for (const button of buttons.children) if (button instanceof HTMLElement) setHidden(button, guarded);
    // Not disabled: that would take the focus away.
    for (const button of buttons.children) setAttribute(button, 'aria-disabled', card.busy ? 'true' : null);
    tool?.draw(card, guarded);
    if (card.tool?.answered === true) setHidden(buttons.firstElementChild as HTMLElement, true);
    setText(trouble, card.note);
    setHidden(trouble, card.note === '');
    setHidden(bar, !card.pending || card.part === 0);
    for (const name of ['title', 'aria-label']) setAttribute(later, name, card.pending ? 'Decide later' : 'Hide');
    bar.style.setProperty('--part', card.part.toFixed(3));
  }
}
