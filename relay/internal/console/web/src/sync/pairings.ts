// The laptops whose cookies the session gets, each with what can be done about it.

import { ask, hint } from '../ui/ask.ts';
import { copy } from '../ui/clipboard.ts';
import { h, keyed, setAttribute, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';
import type { SyncAPI } from './api.ts';
import { cameOf, labelOf, lenient, strict, sumOf, takesLater, whenText, type Pairing, type State } from './model.ts';

// Act makes a change, one at a time, says that it is done, and shows what stands then.
export type Act = (change: () => Promise<void>, done: string) => Promise<void>;

export interface Look {
  name(id: string): string; // of a person
  mayChange: boolean;
  enabled: boolean; // nothing else is being changed
}

interface Parts {
  title: HTMLElement;
  who: HTMLElement;
  secret: HTMLElement;
  facts: Map<string, HTMLElement>;
  address: HTMLElement;
  url: HTMLElement;
  copy: HTMLButtonElement;
  choices: HTMLElement;
  later: HTMLInputElement;
  stop: HTMLButtonElement;
}

export class Pairings {
  readonly #list = h('ul', { class: 'sync-pairings', 'data-testid': 'sync-pairings' });
  readonly #none = h('p', { class: 'fine', 'data-testid': 'sync-none' });
  readonly #problem = h('p', { class: 'problem', role: 'alert', 'data-testid': 'sync-problem' });
  readonly element = h('div', {}, this.#list, this.#none, this.#problem);
  readonly #parts = new WeakMap<HTMLElement, Parts>();
  #shown = new Map<string, Pairing>();

  constructor(private readonly api: SyncAPI, private readonly act: Act) {}

  draw(state: State, look: Look): void {
    this.#shown = new Map(state.pairings.map((p) => [p.id, p]));
    setText(this.#none, state.pairings.length > 0 ? ''
      : look.mayChange ? 'Nobody’s laptop is paired, so the browser is signed in nowhere. Pair one:'
        : 'Nobody’s laptop is paired, so the browser is signed in nowhere. An owner or editor of the dashboard can pair one.');
    setHidden(this.#none, state.pairings.length > 0);
    keyed(this.#list, state.pairings, (p) => p.id, (p) => this.#make(p), (row, p) => this.#draw(row, p, state, look));
  }

  #make({ id }: Pairing): HTMLElement {
    const facts = new Map(['From', 'Last push', 'Here now', 'Paired', 'Fingerprint'].map((name) => [name, h('dd', {})]));
    const parts: Parts = {
      title: h('b', {}), who: h('span', { class: 'fine' }), facts,
      secret: h('p', { class: 'sync-warning' }, 'Paired by a shared secret: whoever knows it and the address can push, and read what is pushed. A pairing with a code is safer.'),
      address: h('details', {}), url: h('code', {}), copy: h('button', { class: 'button small', type: 'button' }, 'Copy'),
      choices: h('div', { class: 'sync-choices' }), later: h('input', { type: 'checkbox', 'data-testid': `sync-accept-${id}` }),
      stop: h('button', { class: 'button small', type: 'button', 'data-testid': `btn-unpair-${id}` }, 'Stop and forget'),
    };
    parts.address.append(h('summary', {}, 'Address for the laptop’s program'), h('p', { class: 'sync-address' }, parts.url, parts.copy));
    parts.choices.append(h('label', { class: 'check' }, parts.later, h('span', {}, 'Accept today’s source (version 2)')), parts.stop);
    parts.later.addEventListener('change', () => void this.#accept(id, parts.later.checked));
    parts.stop.addEventListener('click', () => void this.#stop(id));
    parts.copy.addEventListener('click', () => void this.#copy(id));
    const list = h('dl', {}, ...[...facts].flatMap(([name, value]) => [h('dt', {}, name), value]));
    const row = h('li', { class: 'sync-pairing', 'data-testid': `sync-pairing-${id}` }, h('header', {}, parts.title, parts.who), parts.secret, list, parts.address, parts.choices);
    this.#parts.set(row, parts);
    return row;
  }

  #draw(row: HTMLElement, pairing: Pairing, { sites }: State, { name, mayChange, enabled }: Look): void {
    const parts = this.#parts.get(row);
    if (parts === undefined) return;
    const { last, mode, fingerprint, pairedAt, url = '' } = pairing;
    const label = labelOf(pairing);
    const fact = (of: string, text: string) => setText(parts.facts.get(of) ?? row, text);
    setText(parts.title, label);
    setText(parts.who, `of ${name(pairing.user)}`);
    setHidden(parts.secret, mode !== 'secret');
    fact('From', last === undefined ? 'not known before its first push' : visible(last.hostname));
    fact('Last push', last === undefined ? 'none yet: fairlead-source push --watch there' : `${whenText(last.at)}: ${cameOf(last)}`);
    setAttribute(parts.facts.get('Last push') ?? row, 'title', last !== undefined && last.refused > 0 ? 'What Chromium can’t hold is refused. The program on the laptop says which, and why.' : null);
    fact('Here now', sumOf(pairing.id, sites));
    fact('Paired', whenText(pairedAt));
    fact('Fingerprint', `${visible(fingerprint)}${mode === 'secret' ? ' of the secret' : ''}`);
    setHidden(parts.address, url === '');
    setText(parts.url, visible(url));
    setHidden(parts.choices, !mayChange);
    parts.later.checked = takesLater(pairing);
    parts.later.disabled = parts.stop.disabled = !enabled;
    setAttribute(parts.stop, 'aria-label', `Stop and forget ${label}`);
    setAttribute(parts.copy, 'aria-label', `Copy the address of ${label}`);
  }

  async #accept(id: string, later: boolean): Promise<void> {
    await this.#do(() => this.api.accept(id, later ? lenient : strict), later ? 'Envelopes of version 2 are taken, too' : 'Envelopes of version 1 alone are taken');
  }

  async #stop(id: string): Promise<void> {
    const pairing = this.#shown.get(id);
    if (pairing === undefined) return;
    const label = labelOf(pairing);
    const agreed = await ask(`Stop and forget ${label}?`, 'Its address ends at once, and its cookies leave the sandbox’s Chromium. What it is signed in to there is over; the person stays signed in on the laptop. To have it again, it must be paired again.', 'Stop and forget');
    if (agreed) await this.#do(() => this.api.unpair(id), `${label} is forgotten`);
  }

  async #copy(id: string): Promise<void> {
    const url = this.#shown.get(id)?.url ?? '';
    hint((await copy(url)) ? 'The address is copied' : 'The browser does not let this page write the clipboard');
  }

  async #do(change: () => Promise<void>, done: string): Promise<void> {
    setText(this.#problem, '');
    try {
      await this.act(change, done);
    } catch (error) {
      setText(this.#problem, messageOf(error));
    }
  }
}
