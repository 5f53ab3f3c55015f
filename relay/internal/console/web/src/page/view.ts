// Draws the model into the page's frame, and passes on what the person does there.

import { byId, h, setHidden, setText } from '../ui/dom.ts';
import { shortcut } from '../ui/shortcuts.ts';
import { BannerView, type BannerActions } from './banner.ts';
import { status } from './card.ts';
import { ControlBar, type ControlActions } from './control.ts';
import { help } from './help.ts';
import type { Model } from './model.ts';
import { People } from './people.ts';
import { TabBar, type TabActions } from './tabs.ts';

export interface ViewActions extends TabActions, ControlActions, BannerActions {
  interrupt(): void; // a paste
  find(): void;
  readAloud(on: boolean): void;
  session(id: string): void;
}

export class View {
  readonly hosts = byId('hosts');
  readonly stage = byId('stage');
  readonly #tabs: TabBar;
  readonly #people: People;
  readonly #control: ControlBar;
  readonly #banner: BannerView;

  constructor(actions: ViewActions) {
    this.#tabs = new TabBar(actions);
    this.#people = new People((to) => actions.send({ type: 'grant_control', to }));
    this.#control = new ControlBar(actions);
    this.#banner = new BannerView(actions);
    byId('progress-stop', HTMLButtonElement).addEventListener('click', () => actions.interrupt());
    byId('skip', HTMLAnchorElement).addEventListener('click', (event) => {
      event.preventDefault();
      actions.focusTerminal();
    });
    byId('sessions', HTMLSelectElement).addEventListener('change', (event) => {
      if (event.target instanceof HTMLSelectElement) actions.session(event.target.value);
    });
    document.addEventListener('keydown', (event) => {
      const inTerminal = event.target instanceof HTMLElement && event.target.closest('.xterm') !== null;
      if (event.defaultPrevented || inTerminal || document.querySelector('dialog[open]') !== null) return;
      const find = shortcut(event) === 'find';
      if (event.key !== 'F6' && !find) return;
      event.preventDefault();
      if (find) actions.find();
      else if (!this.#toTools(event.target)) actions.focusTerminal();
    });
    help((on) => actions.readAloud(on));
  }

  draw(model: Model): void {
    status(model.status.text, model.status.tone);
    document.body.classList.toggle('stale', model.stale);
    this.#tabs.draw(model.tabs, model.mayCreate);
    this.#people.draw(model.people);
    this.#control.draw(model.control);
    this.#control.drawRequests(model.requests);
    this.#banner.draw(model.banner, model.live);
    this.#drawProgress(model.progress);
    setText('detail', model.detail);
    setText('held', model.held ? 'What you typed last may be the beginning of a secret; it shows with the next key.' : '');
    if (document.title !== model.title) document.title = model.title;
  }

  // sessions lists what to choose from, when there is a choice.
  sessions(list: { id: string; label: string }[], chosen: string): void {
    const select = byId('sessions', HTMLSelectElement);
    select.replaceChildren(...list.map(({ id, label }) => h('option', { value: id }, label)));
    select.value = chosen;
    setHidden(select, list.length < 2);
  }

  // leave moves the focus from the terminal to what can be done with it.
  leave(): void {
    this.#control.leave();
  }

  // toTools moves the focus from the bar to the tools, which Tab doesn't reach:
  // the terminal between them takes it. It returns whether it did.
  #toTools(from: EventTarget | null): boolean {
    if (!(from instanceof Element) || from.closest('.bar') === null) return false;
    const tool = [...document.querySelectorAll<HTMLButtonElement>('.foot button')].find((b) => !b.disabled && b.checkVisibility());
    tool?.focus();
    return tool !== undefined;
  }

  #drawProgress(percent: number | null): void {
    setHidden('progress', percent === null);
    if (percent === null) return;
    byId('progress-bar', HTMLProgressElement).value = percent;
    setText('progress-text', `Pasting, ${percent} %`);
  }
}
