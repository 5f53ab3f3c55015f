// To whose programs a terminal is open: what everybody sees of it, and what who
// may control the terminal changes.

import { closedToOthers, type TerminalInfo } from '@fairlead/core';
import { byId, h, setHidden, setText } from '../ui/dom.ts';

const wholeSession = 'session';

export interface ShareChoice {
  with: string; // id of a terminal, wholeSession or closedToOthers
  label: string;
}

export interface ShareView {
  mark: string; // empty: its own programs alone use the terminal
  with: string;
  choices: ShareChoice[]; // empty: this person may not change it
}

export const noShare: ShareView = { mark: '', with: closedToOthers, choices: [] };

// shareOf says how the terminal id stands. labels are those of list.
export function shareOf(id: string, shared: string, list: TerminalInfo[], labels: Map<string, string>, may: boolean): ShareView {
  const named = (other: string): string => labels.get(other) ?? 'another terminal';
  const mark = shared === closedToOthers ? '' : shared === wholeSession ? 'Open to all programs here' : `Open to programs of ${named(shared)}`;
  if (!may) return { mark, with: shared, choices: [] };
  const others = list.filter((t) => t.id !== id && (!t.exited || t.id === shared)).map((t) => t.id);
  if (shared !== closedToOthers && shared !== wholeSession && !others.includes(shared)) others.push(shared);
  const choices = [
    { with: closedToOthers, label: 'Closed to other programs' },
    ...others.map((other) => ({ with: other, label: `Open to programs of ${named(other)}` })),
    { with: wholeSession, label: 'Open to programs of all terminals' },
  ];
  return { mark, with: shared, choices };
}


export const warning = {
  title: 'Open this terminal to programs?',
  text: 'They can read all that it shows and type into it while nobody has control, with everything that it may do and knows. Everybody here sees that it is open.',
  yes: 'Open',
};

export class ShareTool {
  readonly #box = byId('tool-share-box');
  readonly #select = byId('tool-share', HTMLSelectElement);
  readonly #mark = byId('shared');
  readonly #words = byId('shared-text');
  #shown = '';

  constructor(choose: (to: string) => void) {
    this.#select.addEventListener('change', () => {
      const to = this.#select.value;
      this.#shown = ''; // it shows the actual state, not the requested one
      choose(to);
    });
  }

  draw(view: ShareView): void {
    setHidden(this.#mark, view.mark === '');
    setText(this.#words, view.mark);
    this.#mark.title = view.mark;
    setHidden(this.#box, view.choices.length === 0);
    const shown = JSON.stringify(view);
    if (shown === this.#shown) return; // a list that is open stays as it is
    this.#shown = shown;
    this.#select.replaceChildren(...view.choices.map(({ with: value, label }) => h('option', { value }, label)));
    this.#select.value = view.with;
  }
}
