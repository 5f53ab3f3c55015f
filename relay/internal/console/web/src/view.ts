// Draws the model into the page and passes on what the person does.

import { byId, h, hue, icon, initials, keyed, setAttribute, setHidden, setNamed, setText } from './dom.ts';
import type { BannerAction, Banner, ControlView, Model, Person, Tab } from './model.ts';
import { shortcut } from './shortcuts.ts';
import { browser } from './storage.ts';

export interface Actions {
  select(id: string): void;
  create(): void;
  close(id: string): void;
  take(): void;
  request(): void;
  cancel(): void;
  release(): void;
  takeBack(): void;
  grant(user: string): void;
  dismiss(user: string): void;
  retry(): void;
  discard(): void; // what was typed and waits for a connection
  interrupt(): void; // a paste
  find(): void;
  focusTerminal(): void;
  readAloud(on: boolean): void;
  session(id: string): void;
}

const hintMs = 4_500;
const actionHintMs = 15_000; // time to read and to decide
const backMs = 2_500;

export interface HintAction {
  label: string;
  run: () => void;
}

export class View {
  readonly hosts = byId('hosts', HTMLElement);
  readonly stage = byId('stage', HTMLElement);
  readonly #buttons = {
    take: byId('take', HTMLButtonElement),
    request: byId('request', HTMLButtonElement),
    cancel: byId('cancel', HTMLButtonElement),
    release: byId('release', HTMLButtonElement),
  };
  readonly #takeBack = byId('take-back', HTMLButtonElement);
  readonly #banner = byId('banner', HTMLElement);
  readonly #hint = byId('hint', HTMLElement);
  #shown: Banner['kind'] | 'back' | null = null;
  #back: number | undefined;
  #hintTimer: number | undefined;
  #bannerAction: BannerAction | null = null;

  constructor(private readonly actions: Actions) {
    for (const name of ['take', 'request', 'cancel', 'release'] as const) {
      this.#buttons[name].addEventListener('click', () => actions[name]());
    }
    this.#takeBack.addEventListener('click', () => actions.takeBack());
    byId('new', HTMLButtonElement).addEventListener('click', () => actions.create());
    byId('banner-action', HTMLButtonElement).addEventListener('click', () => {
      if (this.#bannerAction === 'retry') actions.retry();
      else actions.create();
    });
    byId('banner-discard', HTMLButtonElement).addEventListener('click', () => actions.discard());
    byId('progress-stop', HTMLButtonElement).addEventListener('click', () => actions.interrupt());
    byId('skip', HTMLAnchorElement).addEventListener('click', (event) => {
      event.preventDefault();
      actions.focusTerminal();
    });
    byId('sessions', HTMLSelectElement).addEventListener('change', (event) => {
      if (event.target instanceof HTMLSelectElement) actions.session(event.target.value);
    });
    byId('tabs', HTMLElement).addEventListener('keydown', (event) => this.#tabKey(event));
    document.addEventListener('keydown', (event) => {
      const inTerminal = event.target instanceof HTMLElement && event.target.closest('.xterm') !== null;
      if (event.defaultPrevented || inTerminal || document.querySelector('dialog[open]') !== null) return;
      const find = shortcut(event) === 'find';
      if (event.key !== 'F6' && !find) return;
      event.preventDefault();
      if (find) actions.find();
      else if (!this.#toTools(event.target)) actions.focusTerminal();
    });
    this.#helpDialog();
  }

  draw(model: Model): void {
    setAttribute(byId('status', HTMLElement), 'data-tone', model.status.tone);
    setText(byId('status-text', HTMLElement), model.status.text);
    document.body.classList.toggle('stale', model.stale);
    this.#drawTabs(model);
    this.#drawPeople(model.people);
    this.#drawControl(model.control);
    this.#drawRequests(model.requests);
    this.#drawBanner(model.banner, model.live);
    this.#drawProgress(model.progress);
    setText(byId('detail', HTMLElement), model.detail);
    setText(byId('held', HTMLElement), model.held ? 'What you typed last may be the beginning of a secret; it shows with the next key.' : '');
    if (document.title !== model.title) document.title = model.title;
  }

  // sessions lists what to choose from, when there is a choice.
  sessions(list: { id: string; label: string }[], chosen: string): void {
    const select = byId('sessions', HTMLSelectElement);
    select.replaceChildren(...list.map(({ id, label }) => h('option', { value: id }, label)));
    select.value = chosen;
    setHidden(select, list.length < 2);
  }

  // hint says something in passing, with something to do about it perhaps.
  hint(text: string, action?: HintAction): void {
    clearTimeout(this.#hintTimer);
    setText(byId('hint-text', HTMLElement), text);
    const button = byId('hint-action', HTMLButtonElement);
    setHidden(button, action === undefined);
    setText(button, action?.label ?? '');
    button.onclick = () => {
      this.#hint.classList.remove('shown');
      action?.run();
    };
    this.#hint.classList.add('shown');
    this.#hintTimer = window.setTimeout(() => this.#hint.classList.remove('shown'), action === undefined ? hintMs : actionHintMs);
  }

  // card takes the terminal's place when there is none to show.
  card(card: { title: string; text: string; action?: { label: string; run: () => void } } | null): void {
    setHidden(byId('card', HTMLElement), card === null);
    setText(byId('card-title', HTMLElement), card?.title ?? '');
    setText(byId('card-text', HTMLElement), card?.text ?? '');
    const button = byId('card-action', HTMLButtonElement);
    setHidden(button, card?.action === undefined);
    setText(button, card?.action?.label ?? '');
    button.onclick = () => card?.action?.run();
  }

  status(text: string, tone: Model['status']['tone']): void {
    setAttribute(byId('status', HTMLElement), 'data-tone', tone);
    setText(byId('status-text', HTMLElement), text);
  }

  // ask resolves to whether the person agreed.
  ask(title: string, text: string, yes: string): Promise<boolean> {
    const dialog = byId('ask', HTMLDialogElement);
    setText(byId('ask-title', HTMLElement), title);
    setText(byId('ask-text', HTMLElement), text);
    setText(byId('ask-yes', HTMLElement), yes);
    dialog.returnValue = 'no'; // Escape leaves it as it is
    dialog.showModal();
    byId('ask-no', HTMLButtonElement).focus();
    return new Promise((resolve) => {
      dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
    });
  }

  // leave moves the focus from the terminal to what can be done with it.
  leave(): void {
    const button = Object.values(this.#buttons).find((b) => !b.hidden && !b.disabled);
    (button ?? document.querySelector<HTMLElement>('#tabs [aria-selected="true"]') ?? byId('help-open', HTMLElement)).focus();
  }

  // toTools moves the focus from the bar to the tools, which Tab doesn't reach:
  // the terminal between them takes it. It returns whether it did.
  #toTools(from: EventTarget | null): boolean {
    if (!(from instanceof Element) || from.closest('.bar') === null) return false;
    const tool = [...document.querySelectorAll<HTMLButtonElement>('.foot button')].find((b) => !b.disabled && b.checkVisibility());
    tool?.focus();
    return tool !== undefined;
  }

  #drawTabs({ tabs, mayCreate, mayClose }: Model): void {
    keyed(byId('tabs', HTMLElement), tabs, (tab) => tab.id, (tab) => this.#makeTab(tab), (element, tab) => {
      const button = element.firstElementChild as HTMLElement;
      element.style.order = String(2 * tabs.indexOf(tab));
      element.classList.toggle('active', tab.active);
      element.classList.toggle('ended', tab.ended);
      element.classList.toggle('unseen', tab.unseen);
      element.classList.toggle('mine', tab.mine);
      setText(button.lastElementChild ?? button, tab.label);
      setAttribute(button, 'title', [tab.hint, tab.egress].filter((text) => text !== '').join(' · '));
      setAttribute(element, 'data-egress', tab.egress || null);
      setAttribute(button, 'aria-selected', String(tab.active));
      setAttribute(button, 'tabindex', tab.active ? '0' : '-1');
    });
    this.#drawClose(tabs, mayClose);
    setHidden(byId('new', HTMLButtonElement), !mayCreate);
  }

  // A list of tabs holds tabs alone, so the button that closes the shown one stands
  // beside the list, and only looks as if it were in there.
  #drawClose(tabs: Tab[], mayClose: boolean): void {
    const close = byId('tab-close', HTMLButtonElement);
    const at = tabs.findIndex((tab) => tab.active);
    const tab = tabs[at];
    setHidden(close, !mayClose || tab === undefined);
    if (tab === undefined) return;
    close.style.order = String(2 * at + 1);
    setAttribute(close, 'aria-label', `Close ${tab.label}`);
    setAttribute(close, 'data-testid', `btn-close-${tab.id}`);
    close.onclick = () => this.actions.close(tab.id);
  }

  #makeTab({ id }: Tab): HTMLElement {
    const dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
    const button = h('button', { class: 'tab', type: 'button', role: 'tab', 'aria-controls': 'stage', 'data-testid': `tab-${id}` }, dot, icon('shield'), h('span', {}));
    button.addEventListener('click', () => this.actions.select(id));
    return h('div', { class: 'tab-box', role: 'presentation' }, button);
  }

  #tabKey(event: KeyboardEvent): void {
    const all = [...byId('tabs', HTMLElement).querySelectorAll<HTMLElement>('[role=tab]')];
    const at = all.indexOf(event.target as HTMLElement);
    if (at < 0) return;
    const move = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (move !== undefined) {
      event.preventDefault();
      const next = all.at(move % all.length);
      next?.focus();
      next?.click();
    } else if (event.key === 'Delete') {
      const close = byId('tab-close', HTMLButtonElement);
      if (!close.hidden) close.click(); // of the tab that is shown, as the focused one is
    }
  }

  #drawPeople({ count, list }: Model['people']): void {
    const button = byId('people', HTMLButtonElement);
    setHidden(button, count === 0);
    if (button.hidden) return;
    const names = list.map((p) => (p.you ? `${p.name} (you)` : p.name));
    const more = count > list.length ? ` and ${count - list.length} more` : '';
    setAttribute(button, 'aria-label', `${count === 1 ? '1 person watches' : `${count} people watch`}: ${names.join(', ')}${more}`);
    setAttribute(button, 'title', names.join(', ') + more);
    const faces = list.slice(0, 4);
    keyed(button, [...faces.map((p) => p.id), ...(count > faces.length ? ['+'] : [])], (id) => id,
      (id) => h('span', { class: id === '+' ? 'more' : 'face', 'aria-hidden': 'true' }),
      (element, id) => {
        const person = faces.find((p) => p.id === id);
        setText(element, person === undefined ? `+${count - faces.length}` : initials(person.name));
        if (person !== undefined) this.#colour(element, person);
      });
    this.#drawPeopleList({ count, list }, more);
  }

  #drawPeopleList({ list }: Model['people'], more: string): void {
    const rows = [...list.map((person) => ({ id: person.id, person })), ...(more === '' ? [] : [{ id: '+', person: null }])];
    keyed(byId('people-list', HTMLElement), rows, (row) => row.id,
      ({ person }) => {
        if (person === null) return h('p', { class: 'fine' });
        const give = h('button', { class: 'button small', type: 'button', 'data-testid': `btn-give-${person.id}` }, 'Give control');
        give.addEventListener('click', () => this.actions.grant(person.id));
        return h('div', { class: 'person', 'data-testid': `viewer-${person.id}` },
          h('span', { class: 'face', 'aria-hidden': 'true' }), h('span', { class: 'who' }, h('b', {}), h('span', { class: 'fine' })), give);
      },
      (element, { person }) => {
        if (person === null) return setText(element, more.trim());
        const [face, who, give] = [...element.children] as [HTMLElement, HTMLElement, HTMLElement];
        setText(face, initials(person.name));
        this.#colour(face, person);
        setText(who.firstElementChild ?? who, person.you ? `${person.name} (you)` : person.name);
        setText(who.lastElementChild ?? who, person.note);
        setHidden(give, !person.mayReceive);
      });
  }

  #colour(face: HTMLElement, person: Person): void {
    face.style.setProperty('--hue', hue(person.id));
    face.classList.toggle('controls', person.controls);
  }

  #drawControl(control: ControlView): void {
    const box = byId('control', HTMLElement);
    const focused = [...Object.values(this.#buttons), this.#takeBack].find((b) => b === document.activeElement);
    setAttribute(box, 'data-kind', control.kind);
    setAttribute(document.body, 'data-control', control.kind);
    const holder = byId('controller', HTMLElement);
    setNamed(holder, control.name, control.text);
    setText(byId('controller-detail', HTMLElement), control.detail);
    setAttribute(holder, 'data-user-id', control.id);
    setHidden(byId('view-only', HTMLElement), !control.viewOnly);
    for (const [name, button] of Object.entries(this.#buttons)) {
      setHidden(button, control.action !== name);
      button.disabled = !control.enabled;
    }
    setHidden(this.#takeBack, !control.takeBack);
    this.#takeBack.disabled = !control.enabled;
    if (focused?.hidden !== true) return;
    if (control.kind === 'you') this.actions.focusTerminal();
    else this.leave();
  }

  #drawRequests(requests: Model['requests']): void {
    keyed(byId('requests', HTMLElement), requests, (r) => r.id,
      ({ id, name }) => {
        const face = h('span', { class: 'face', 'aria-hidden': 'true' }, initials(name));
        face.style.setProperty('--hue', hue(id));
        const grant = h('button', { class: 'button primary small', type: 'button', 'data-testid': `btn-grant-${id}` }, 'Give control');
        grant.addEventListener('click', () => this.actions.grant(id));
        const later = h('button', { class: 'plain', type: 'button', 'aria-label': `Not now, ${name}`, title: 'Not now' }, icon('close'));
        later.addEventListener('click', () => this.actions.dismiss(id));
        return h('div', { class: 'request' }, face, h('span', { class: 'words' }), grant, later);
      },
      (element, { name }) => {
        const words = element.children[1] ?? element;
        if (words.textContent !== `${name} asks for control`) words.replaceChildren(h('b', {}, name), ' asks for control');
      });
  }

  #drawBanner(banner: Banner | null, live: boolean): void {
    const before = this.#shown;
    const trouble = before === 'lost' || before === 'waiting';
    if (banner === null && before === 'back' && live) return; // its timer runs
    clearTimeout(this.#back);
    if (banner === null && trouble && live) {
      this.#shown = 'back';
      const text = before === 'lost' ? 'Connected again.' : 'The sandbox is back.';
      this.#fillBanner({ kind: 'back', text, detail: '', action: null, kept: '' });
      this.#back = window.setTimeout(() => {
        this.#shown = null;
        setHidden(this.#banner, true);
      }, backMs);
      return;
    }
    this.#shown = banner?.kind ?? null;
    if (banner === null) setHidden(this.#banner, true);
    else this.#fillBanner(banner);
  }

  #fillBanner({ kind, text, detail, action, kept }: Omit<Banner, 'kind'> & { kind: string }): void {
    setHidden(this.#banner, false);
    setAttribute(this.#banner, 'data-kind', kind);
    setText(byId('banner-text', HTMLElement), text);
    setText(byId('banner-detail', HTMLElement), detail);
    setText(byId('banner-kept', HTMLElement), kept);
    setHidden(byId('banner-discard', HTMLButtonElement), kept === '');
    const button = byId('banner-action', HTMLButtonElement);
    this.#bannerAction = action;
    setHidden(button, action === null);
    setText(button, action === 'new-terminal' ? 'New terminal' : 'Try now');
  }

  #drawProgress(percent: number | null): void {
    setHidden(byId('progress', HTMLElement), percent === null);
    if (percent === null) return;
    byId('progress-bar', HTMLProgressElement).value = percent;
    setText(byId('progress-text', HTMLElement), `Pasting, ${percent} %`);
  }

  #helpDialog(): void {
    const dialog = byId('help', HTMLDialogElement);
    const revision = document.querySelector('meta[name=fairlead-revision]')?.getAttribute('content');
    byId('revision', HTMLElement).textContent = revision ? `fairlead ${revision}` : '';
    byId('help-open', HTMLButtonElement).addEventListener('click', () => {
      const menu = byId('tools', HTMLElement);
      if (menu.matches(':popover-open')) menu.hidePopover();
      dialog.showModal();
    });
    for (const button of document.querySelectorAll('dialog .close')) {
      button.addEventListener('click', () => button.closest('dialog')?.close());
    }
    const reader = byId('reader', HTMLInputElement);
    reader.checked = browser.get('reader') === 'on';
    reader.addEventListener('change', () => {
      browser.set('reader', reader.checked ? 'on' : null);
      this.actions.readAloud(reader.checked);
    });
  }
}
