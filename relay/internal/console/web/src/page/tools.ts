// What can be done with the shown terminal besides typing: a row below it, or
// on a phone a menu.

import { ShareTool } from '../terminal/share.ts';
import { byId, closeMenu, keepFocus, setAttribute, setHidden, setText } from '../ui/dom.ts';
import type { Actions } from './actions.ts';
import type { Model } from './model.ts';

// Dialogs are opened by tools of their own.
export interface Dialogs {
  recordings(): void;
  env: (() => void) | undefined; // undefined: not for this person
  approvals: (() => void) | undefined;
}

export class Tools {
  readonly #earlier: HTMLButtonElement;
  readonly #record: HTMLButtonElement;
  readonly #normal: HTMLButtonElement;
  readonly #share: ShareTool;

  constructor(actions: Actions, dialogs: Dialogs) {
    const tool = (id: string, press: () => void, stays = false): HTMLButtonElement => {
      const button = byId(`tool-${id}`, HTMLButtonElement);
      keepFocus(button);
      button.addEventListener('click', () => {
        if (!stays) closeMenu();
        press();
      });
      return button;
    };
    this.#earlier = tool('earlier', () => actions.showEarlier());
    tool('find', () => actions.find());
    tool('copy', () => actions.copy());
    tool('paste', () => void actions.paste());
    tool('smaller', () => actions.size('smaller'), true);
    this.#normal = tool('normal', () => actions.size('normal'), true);
    tool('bigger', () => actions.size('bigger'), true);
    this.#record = tool('record', () => void actions.record());
    tool('recordings', dialogs.recordings);
    this.#share = new ShareTool((to) => void actions.share(to));
    for (const [id, press] of [['env', dialogs.env], ['egress', dialogs.approvals]] as const) {
      if (press !== undefined) setHidden(tool(id, press), false);
    }
  }

  draw({ earlier, mayRecord, recording, share, typeSize }: Model['tools']): void {
    setHidden(this.#earlier, !earlier);
    setHidden(this.#record, !mayRecord);
    setAttribute(this.#record, 'aria-pressed', String(recording));
    setText(this.#record.querySelector('.label') ?? this.#record, recording ? 'Stop recording' : 'Record');
    setText(this.#normal, String(typeSize));
    setAttribute(this.#normal, 'aria-label', `Text size ${typeSize}; back to the normal size`);
    setHidden('rec', !recording);
    this.#share.draw(share);
  }
}
