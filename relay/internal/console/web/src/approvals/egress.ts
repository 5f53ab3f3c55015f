// The dialog about what leaves the sandbox: what was decided last, and the rules
// that stand.

import type { Session } from '@fairlead/core';
import { byId, h, icon, keyed, setAttribute, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';
import type { LogLine } from './approvals.ts';

export interface EgressRules {
  state: string; // 'off', 'advisory' or 'enforced': of new terminals
  why?: string;
  defaults: { name: string; patterns: string[] | null }[] | null;
  user: string[] | null; // allowed by decision
  denied: string[] | null;
  static?: string[] | null;
}

// stateText says what a state means for terminals that are opened now.
export function stateText({ state, why }: EgressRules): { label: string; text: string } {
  switch (state) {
    case 'enforced':
      return { label: 'Enforced', text: 'Terminals reach other hosts through the egress proxy alone; hosts that no rule knows are asked about.' };
    case 'advisory': {
      const reason = why ? ` (${visible(why)})` : '';
      return { label: 'Advisory', text: `Terminals are told to use the egress proxy, but a program that ignores it gets out unasked${reason}.` };
    }
    case 'off':
      return { label: 'Off', text: 'New terminals connect to any host, and nobody is asked.' };
    default:
      return { label: visible(state), text: '' };
  }
}

// terminalEgress is a few words about one terminal, '' where it goes where it
// likes.
export function terminalEgress(state: string | undefined): string {
  if (state === 'enforced') return 'egress enforced';
  return state === 'advisory' ? 'egress advisory' : '';
}

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });

export class EgressDialog {
  readonly #dialog = byId('egress', HTMLDialogElement);
  readonly #note = byId('egress-note');
  readonly #rules = byId('egress-rules');
  #turn = 0; // answers to earlier requests are ignored

  constructor(private readonly session: Session) {}

  get isOpen(): boolean {
    return this.#dialog.open;
  }

  open(): void {
    this.#dialog.showModal();
    this.#dialog.focus(); // rather than its close button
    void this.refresh();
  }

  // refresh reads the rules again, where they are shown.
  async refresh(): Promise<void> {
    if (!this.#dialog.open) return;
    const turn = ++this.#turn;
    try {
      const rules = await this.session.get<EgressRules>('/egress/allowlist');
      if (turn !== this.#turn) return;
      this.#draw(rules);
      setText(this.#note, '');
    } catch (error) {
      if (turn === this.#turn) setText(this.#note, messageOf(error));
    }
  }

  drawLog(lines: LogLine[]): void {
    const list = byId('approvals-log');
    keyed(list, lines, (line) => line.id, (line) => h('li', { class: 'logged', 'data-testid': `decided-${line.id}` },
      h('time', {}), h('span', { class: 'who' }, h('bdi', { dir: 'ltr' }), h('span', { class: 'fine' }))),
    (element, { at, host, who, tone, outcome }) => {
      const [time, words] = [...element.children] as [HTMLElement, HTMLElement];
      setAttribute(element, 'data-tone', tone);
      setText(time, clock.format(at));
      setText(words.firstElementChild ?? words, host);
      setText(words.lastElementChild ?? words, who === '' ? outcome : `${outcome} · ${who}`);
    });
    setHidden('approvals-none', lines.length > 0);
  }

  #draw(rules: EgressRules): void {
    const { label, text } = stateText(rules);
    const state = byId('egress-state');
    setAttribute(state, 'data-state', rules.state);
    state.replaceChildren(h('b', {}, label), ` ${text}`);
    const open = this.#rules.querySelector('details')?.open === true;
    this.#rules.replaceChildren(
      ...this.#own('Allowed always', rules.user ?? [], 'Nothing but the defaults.'),
      ...this.#own('Denied always', rules.denied ?? [], 'Nothing.'),
      ...(rules.static?.length ? [h('h4', {}, 'Given addresses by the operator'), patterns(rules.static)] : []),
      defaultsOf(rules, open),
    );
  }

  // own are rules that somebody made, and that can be taken back.
  #own(title: string, list: string[], none: string): HTMLElement[] {
    const rows = list.map((pattern) => {
      const remove = h('button', { class: 'plain', type: 'button', title: 'Remove this rule', 'aria-label': `Remove the rule for ${visible(pattern)}`, 'data-testid': `btn-revoke-${pattern}` }, icon('close'));
      remove.addEventListener('click', () => void this.#revoke(pattern, remove));
      return h('li', { 'data-testid': `rule-${pattern}` }, h('bdi', { dir: 'ltr' }, visible(pattern)), remove);
    });
    return [h('h4', {}, title), list.length === 0 ? h('p', { class: 'fine' }, none) : h('ul', { class: 'rules' }, ...rows)];
  }

  async #revoke(pattern: string, button: HTMLButtonElement): Promise<void> {
    button.disabled = true;
    setText(this.#note, '');
    try {
      await this.session.change(`revoke ${pattern}`, '/egress/revoke', { method: 'POST', body: { pattern } });
      await this.refresh();
    } catch (error) {
      button.disabled = false;
      setText(this.#note, messageOf(error));
    }
  }
}

function defaultsOf({ defaults }: EgressRules, open: boolean): HTMLElement {
  const all = defaults ?? [];
  const count = all.reduce((sum, { patterns }) => sum + (patterns?.length ?? 0), 0);
  const box = h('details', {}, h('summary', {}, `Allowed by default: ${count} hosts in ${all.length} categories`),
    ...all.flatMap(({ name, patterns: list }) => [h('h4', {}, visible(name)), patterns(list ?? [])]));
  box.open = open;
  return box;
}

const patterns = (list: string[]): HTMLElement => h('p', { class: 'patterns' }, ...list.flatMap((pattern) => [h('bdi', { dir: 'ltr' }, visible(pattern)), ' ']));
