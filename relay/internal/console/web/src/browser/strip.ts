// The row of the browser's tabs, for whoever watches it.

import { byId, h, keyed, setAttribute, setHidden, setText } from '../ui/dom.ts';
import { visible } from '../ui/visible.ts';

export interface BrowserTab {
  id: number;
  url: string;
  title: string;
  active: boolean; // calls that name no tab are for it
}

export class BrowserStrip {
  readonly #row = byId('browser-tabs');

  constructor(private readonly select: (id: number) => void) {
    this.#row.addEventListener('keydown', (event) => this.#key(event));
  }

  // draw shows the tabs, of which one is watched. One tab alone needs no row.
  draw(tabs: BrowserTab[], watched: number | undefined): void {
    setHidden(this.#row, tabs.length < 2);
    keyed(this.#row, tabs, (tab) => String(tab.id), (tab) => this.#make(tab), (button, tab) => {
      const name = nameOf(tab);
      button.style.order = String(tabs.indexOf(tab));
      button.classList.toggle('in-use', tab.active);
      setText(button.lastElementChild ?? button, name);
      setAttribute(button, 'title', `${name}${tab.active ? ' · active' : ''}${tab.url === '' ? '' : `\n${visible(tab.url)}`}`);
      setAttribute(button, 'aria-selected', String(tab.id === watched));
      setAttribute(button, 'tabindex', tab.id === watched ? '0' : '-1');
    });
  }

  #make({ id }: BrowserTab): HTMLElement {
    const dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
    const button = h('button', { class: 'browser-tab', type: 'button', role: 'tab', 'aria-controls': 'browser-stage', 'data-testid': `browser-tab-${id}` }, dot, h('span', {}));
    button.addEventListener('click', () => this.select(id));
    return button;
  }

  #key(event: KeyboardEvent): void {
    const all = [...this.#row.querySelectorAll<HTMLElement>('[role=tab]')].sort((a, b) => Number(a.style.order) - Number(b.style.order));
    const at = all.indexOf(event.target as HTMLElement);
    const move = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || move === undefined) return;
    event.preventDefault();
    const next = all.at(move % all.length);
    next?.focus();
    next?.click();
  }
}

function nameOf({ id, title, url }: BrowserTab): string {
  if (title !== '') return visible(title);
  return url === '' || url === 'about:blank' ? `Tab ${id}` : visible(url);
}
