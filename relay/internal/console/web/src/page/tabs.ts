// The row of tabs: one for each terminal of the session, then one for each page of
// a plugin.

import { byId, h, icon, keyed, setAttribute, setHidden, setText } from '../ui/dom.ts';
import type { Tab } from './model.ts';

export interface TabActions {
  select(id: string): void;
  create(): void;
  close(id: string): void;
}

export class TabBar {
  readonly #tabs = byId('tabs');
  readonly #new = byId('new', HTMLButtonElement);
  readonly #close = byId('tab-close', HTMLButtonElement);

  constructor(private readonly actions: TabActions) {
    this.#new.addEventListener('click', () => actions.create());
    this.#tabs.addEventListener('keydown', (event) => this.#key(event));
  }

  draw(tabs: Tab[], mayCreate: boolean): void {
    keyed(this.#tabs, tabs, (tab) => tab.id, (tab) => this.#make(tab), (element, tab) => {
      const button = element.firstElementChild as HTMLElement;
      element.style.order = String(2 * tabs.indexOf(tab));
      element.classList.toggle('active', tab.active);
      element.classList.toggle('ended', tab.ended);
      element.classList.toggle('unseen', tab.unseen);
      element.classList.toggle('mine', tab.mine);
      element.classList.toggle('waiting', tab.waiting);
      element.classList.toggle('page', tab.page);
      setText(button.lastElementChild ?? button, tab.label);
      setAttribute(button, 'title', [tab.hint, tab.egress].filter((text) => text !== '').join(' · '));
      setAttribute(element, 'data-egress', tab.egress || null);
      setAttribute(button, 'aria-selected', String(tab.active));
      setAttribute(button, 'tabindex', tab.active ? '0' : '-1');
    });
    this.#drawClose(tabs, mayCreate);
    setHidden(this.#new, !mayCreate);
  }

  // A list of tabs holds tabs alone, so the button that closes the shown one stands
  // beside the list, and only looks as if it were in there.
  #drawClose(tabs: Tab[], mayClose: boolean): void {
    const close = this.#close;
    const at = tabs.findIndex((tab) => tab.active);
    const tab = tabs[at];
    setHidden(close, !mayClose || tab === undefined || tab.page);
    if (tab === undefined) return;
    close.style.order = String(2 * at + 1);
    setAttribute(close, 'aria-label', `Close ${tab.label}`);
    setAttribute(close, 'data-testid', `btn-close-${tab.id}`);
    close.onclick = () => this.actions.close(tab.id);
  }

  #make({ id }: Tab): HTMLElement {
    const dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
    const button = h('button', { class: 'tab', type: 'button', role: 'tab', 'aria-controls': 'stage', 'data-testid': `tab-${id}` }, dot, icon('shield'), h('span', {}));
    button.addEventListener('click', () => this.actions.select(id));
    return h('div', { class: 'tab-box', role: 'presentation' }, button);
  }

  #key(event: KeyboardEvent): void {
    const all = [...this.#tabs.querySelectorAll<HTMLElement>('[role=tab]')];
    const at = all.indexOf(event.target as HTMLElement);
    if (at < 0) return;
    const move = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (move !== undefined) {
      event.preventDefault();
      const next = all.at(move % all.length);
      next?.focus();
      next?.click();
    } else if (event.key === 'Delete') {
      if (!this.#close.hidden) this.#close.click(); // of the tab that is shown, as the focused one is
    }
  }
}
