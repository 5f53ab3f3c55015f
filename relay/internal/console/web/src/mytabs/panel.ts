// The panel with the tabs of people's own browsers that the session's agents may
// use, and with what ran in one's own.

import type { Session } from '@fairlead/core';
import { hint } from '../ui/ask.ts';
import { byId, h, keyed, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import type { Side, SidePanel } from '../ui/side.ts';
import { visible } from '../ui/visible.ts';
import { Extension, runtimeOf } from './extension.ts';
import { Forwarder } from './forwarder.ts';
import { stateOf, tabOf, timesOf, until, type Ran, type Shared } from './view.ts';

const askMs = 2_000;
// By then most commands are done, and several at once are asked for once.
const newsMs = 300;
// At most so often a person is told that a command didn't get there.
const tellMs = 10_000;

export interface MyTabsOptions {
  you: string;
  mayUse: boolean; // share, and have commands run
}

// extensions are those that the relay knows.
const extensions = (): string[] => (document.querySelector('meta[name=fairlead-extensions]')?.getAttribute('content') ?? '').split(' ').filter((id) => id !== '');

export class MyTabs implements SidePanel {
  readonly #panel = byId('mytabs');
  readonly #forwarder: Forwarder;
  #shared: Shared[] = [];
  #ran: Ran[] = [];
  #trouble = '';
  #problem = ''; // of the last command that didn't get there
  #told = -Infinity;
  #ticker: number | undefined;
  #turn = 0;
  #waits = false; // news is about to be asked for

  constructor(private readonly session: Session, side: Side, private readonly options: MyTabsOptions) {
    const { platform } = session;
    this.#forwarder = new Forwarder(session, new Extension(runtimeOf(window), platform.clock), {
      you: options.you, name: document.title, ids: extensions(), locks: navigator.locks as LockManager | undefined,
    }, { problem: (text) => this.#tell(text), changed: () => this.#soon() });
    side.add('mytabs', this);
    if (options.mayUse) this.#forwarder.start();
  }

  opened(): void {
    this.#draw();
    void this.#ask();
    this.#ticker = window.setInterval(() => {
      if (!document.hidden) void this.#ask();
    }, askMs);
    if (this.#forwarder.found === undefined && this.options.mayUse) void this.#forwarder.look().then(() => this.#draw());
    byId('mytabs-close', HTMLButtonElement).focus();
  }

  closed(): void {
    clearInterval(this.#ticker);
  }

  #tell(text: string): void {
    this.#problem = `A command for this browser didn’t get there: ${text}`;
    const now = this.session.platform.clock.now();
    if (now - this.#told >= tellMs) {
      this.#told = now;
      hint(this.#problem);
    }
    this.#draw();
  }

  #soon(): void {
    if (this.#waits) return;
    this.#waits = true;
    this.session.platform.clock.setTimeout(() => {
      this.#waits = false;
      void this.#ask();
    }, newsMs);
  }

  async #ask(): Promise<void> {
    if (this.#panel.hidden) return;
    const turn = ++this.#turn;
    try {
      const list = await this.session.get<{ tabs: Shared[]; commands: Ran[] }>('/tabs');
      if (turn !== this.#turn) return;
      this.#shared = list.tabs;
      this.#ran = list.commands;
      this.#trouble = '';
    } catch (error) {
      if (turn === this.#turn) this.#trouble = `What is shared is not known: ${messageOf(error)}`;
    }
    this.#draw();
  }

  #draw(): void {
    if (this.#panel.hidden) return;
    const now = Date.now();
    const found = this.#forwarder.found;
    const note = this.#trouble || this.#problem;
    setText('mytabs-note', note);
    setHidden('mytabs-note', note === '');
    setText('mytabs-here', !this.options.mayUse ? 'You may watch, but not share tabs of your own here.'
      : found === undefined ? 'No extension answers in this browser. With it you can share tabs from its button in the browser’s bar.'
        : this.#forwarder.leads ? 'The extension answers. Share a tab from its button in the browser’s bar.'
          : 'The extension answers. Another window of yours passes commands on.');
    setText('mytabs-none', this.#shared.length === 0 ? 'No tab is shared with this session.' : '');
    keyed(byId('mytabs-shared'), this.#shared, (s) => `${s.user} ${s.browserId} ${s.tabId}`, () => this.#sharedRow(), (row, s) => this.#drawShared(row, s, now));
    setHidden('mytabs-ran-part', !this.options.mayUse);
    setText('mytabs-idle', this.#ran.length === 0 ? 'Nothing has run in a browser of yours.' : '');
    keyed(byId('mytabs-ran'), this.#ran, (r) => r.commandId, () => this.#ranRow(), (row, r) => this.#drawRan(row, r, now));
  }

  #sharedRow(): HTMLElement {
    const stop = h('button', { class: 'button small', type: 'button' }, 'Stop sharing');
    const row = h('li', { class: 'mytab', 'data-testid': 'mytab' },
      h('span', { class: 'who' }, h('b', {}), h('bdi', { class: 'fine', dir: 'ltr' }), h('span', { class: 'fine' })), stop);
    stop.addEventListener('click', () => this.#forwarder.unshare(Number(row.dataset.tab)));
    return row;
  }

  #drawShared(row: HTMLElement, { user, name, browserId, tabId, title, url, expiresAt, last }: Shared, now: number): void {
    const own = user === this.options.you;
    const here = own && browserId === this.#forwarder.found?.browserId;
    const [heading, address, about] = [...row.querySelectorAll('.who > *')];
    const stop = row.querySelector('button');
    if (heading === undefined || address === undefined || about === undefined || stop === null) return;
    row.dataset.tab = String(tabId);
    const label = visible(title === '' ? `Tab ${tabId}` : title);
    setText(heading, label);
    setText(address, visible(url));
    const whose = here ? 'yours' : own ? 'yours, in another browser' : `of ${visible(name)}`;
    setText(about, `${whose}, ${until(expiresAt, now)}${last === undefined ? '' : ` · last ${visible(last.method)}`}`);
    setHidden(stop, !here);
    stop.setAttribute('aria-label', `Stop sharing ${label}`);
  }

  #ranRow(): HTMLElement {
    return h('li', { class: 'ran', 'data-testid': 'ran' },
      h('details', {}, h('summary', {}, h('code', {}), h('span', { class: 'state' }), h('span', { class: 'fine' })), h('pre', { tabindex: '0', 'aria-label': 'Answer' })));
  }

  #drawRan(row: HTMLElement, ran: Ran, now: number): void {
    const [method, state, about, answer] = [row.querySelector('code'), row.querySelector('.state'), row.querySelector('.fine'), row.querySelector('pre')];
    if (method === null || state === null || about === null || answer === null) return;
    const { tone, text } = stateOf(ran, now);
    setText(method, visible(ran.method));
    setText(state, text);
    state.className = `state ${tone}`;
    setText(about, `${visible(tabOf(ran, this.#shared))} · ${ran.by === 'agent' ? 'an agent' : 'you'} · ${timesOf(ran)}`);
    setText(answer, visible(ran.error?.message ?? ran.answer ?? 'There is no answer to show.'));
  }
}
