// The panel "Signed-in sites": whose cookies the session's browser has, of which
// sites, and which ones it takes. No cookie's value ever comes here.

import type { Session } from '@fairlead/core';
import { hint } from '../ui/ask.ts';
import { byId, h, keyed, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';
import { SyncAPI } from './api.ts';
import { found, labelOf, plural, type State } from './model.ts';
import { PairForm } from './pair.ts';
import { Pairings } from './pairings.ts';
import { PolicyView } from './policy.ts';

// More rows than this nobody reads, and a phone is slow with them.
const mostSites = 200;
// From so many on there is a field to find one.
const manySites = 15;

export interface SyncOptions {
  you: string;
  dashboard: string; // '' if none
  mayChange: boolean; // pair, stop, and say which sites are taken
  name(id: string): string; // of a person who is here
}

export class SyncPanel {
  readonly #api: SyncAPI;
  readonly #refresh = byId('sync-refresh', HTMLButtonElement);
  readonly #body = byId('sync-body');
  readonly #pairings: Pairings;
  readonly #pair: PairForm;
  readonly #policy: PolicyView;
  readonly #find = h('input', { type: 'search', placeholder: 'Find a site', 'aria-label': 'Find a site', autocapitalize: 'off', spellcheck: 'false', 'data-testid': 'sync-find' });
  readonly #sites = h('ul', { class: 'sync-sites', 'data-testid': 'sync-sites' });
  readonly #more = h('p', { class: 'fine', 'data-testid': 'sync-more' });
  #state: State | undefined;
  #names = new Map<string, string>();
  #turn = 0; // answers to earlier requests are ignored
  #busy = false;
  #open = false;

  constructor(session: Session, private readonly options: SyncOptions) {
    this.#api = new SyncAPI(session, options.dashboard);
    const act = (change: () => Promise<void>, done: string) => this.#act(change, done);
    this.#pairings = new Pairings(this.#api, act);
    this.#pair = new PairForm(this.#api, session.id, act);
    this.#policy = new PolicyView(this.#api, act);
    this.#build();
    this.#refresh.addEventListener('click', () => void this.#ask());
    this.#find.addEventListener('input', () => this.#drawSites());
    // Somebody may have pushed meanwhile.
    document.addEventListener('visibilitychange', () => {
      if (this.#open && !document.hidden) void this.#ask();
    });
  }

  opened(): void {
    this.#open = true;
    this.#draw();
    void this.#ask();
    if (this.#names.size === 0) void this.#learn();
  }

  closed(): void {
    this.#open = false;
    this.#turn++;
    this.#pair.clear();
    this.#policy.clear();
  }

  #build(): void {
    this.#body.append(
      h('p', { class: 'fine' }, 'The session’s browser is signed in with these people’s cookies. Whoever may use it, and every agent here, is them at these sites.'),
      h('h3', {}, 'Whose'), this.#pairings.element,
      ...(this.options.mayChange ? [this.#pair.element] : []),
      h('h3', { id: 'sync-sites-title' }, 'Sites'), this.#find, this.#sites, this.#more,
      h('h3', {}, 'What is taken'), this.#policy.element,
    );
  }

  async #ask(): Promise<void> {
    const turn = ++this.#turn;
    this.#refresh.disabled = true;
    try {
      const state = await this.#api.state();
      if (turn !== this.#turn) return;
      this.#state = state;
      this.#say('');
    } catch (error) {
      if (turn === this.#turn) this.#say(`${this.#state === undefined ? 'Nothing is known' : 'This may be old'}: ${messageOf(error)}`);
    } finally {
      if (turn === this.#turn || !this.#open) this.#refresh.disabled = false;
    }
    this.#draw();
  }

  // learn asks what people are called who aren't here. Without an answer they have
  // shorter names.
  async #learn(): Promise<void> {
    try {
      this.#names = await this.#api.names();
      this.#draw();
    } catch {
      // As said.
    }
  }

  // act makes one change at a time, and shows how things stand then. It fails as the
  // change does.
  async #act(change: () => Promise<void>, done: string): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    this.#draw();
    try {
      await change();
      if (done !== '') hint(done);
    } finally {
      this.#busy = false;
      await this.#ask();
    }
  }

  #say(text: string): void {
    setText('sync-note', text);
    setHidden('sync-note', text === '');
  }

  #draw(): void {
    if (!this.#open) return;
    const may = this.options.mayChange && !this.#busy;
    setHidden(this.#body, this.#state === undefined);
    this.#body.classList.toggle('busy', this.#busy);
    if (this.#state === undefined) return;
    const name = (id: string) => (id === this.options.you ? 'you' : visible(this.#names.get(id) ?? this.options.name(id)));
    this.#pairings.draw(this.#state, { name, mayChange: this.options.mayChange, enabled: may });
    this.#pair.draw(may);
    this.#policy.draw(this.#state.policy, { mayChange: this.options.mayChange, enabled: may });
    this.#drawSites();
  }

  #drawSites(): void {
    const { sites = [], pairings = [] } = this.#state ?? {};
    setHidden(this.#find, sites.length < manySites);
    const wanted = this.#find.hidden ? sites : found(sites, this.#find.value);
    const labels = new Map(pairings.map((p) => [p.id, labelOf(p)]));
    keyed(this.#sites, wanted.slice(0, mostSites), ({ site, pairing }) => `${pairing} ${site}`,
      () => h('li', {}, h('bdi', { dir: 'ltr' }), h('span', { class: 'fine' })),
      (row, { site, cookies, pairing }) => {
        const [host, about] = [...row.children];
        if (host === undefined || about === undefined) return;
        setText(host, visible(site));
        setText(about, `${plural(cookies, 'cookie')}${pairings.length > 1 ? ` · ${labels.get(pairing) ?? ''}` : ''}`);
      });
    setText(this.#more, sites.length === 0 ? 'No cookies are here. A push from a paired laptop brings them.'
      : wanted.length === 0 ? 'No site is called that.'
        : wanted.length > mostSites ? `And ${(wanted.length - mostSites).toLocaleString()} more: type a part of a name to find one.` : '');
  }
}
