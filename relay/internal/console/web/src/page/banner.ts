// What stands in the way of seeing and typing, and that it is over.

import { byId, setAttribute, setHidden, setText } from '../ui/dom.ts';
import type { Banner, BannerAction } from './model.ts';

const backMs = 2_500; // how long it is said that all is well again

export interface BannerActions {
  create(): void;
  retry(): void;
  discard(): void; // what was typed and waits for a connection
}

export class BannerView {
  readonly #box = byId('banner');
  #shown: Banner['kind'] | 'back' | null = null;
  #back: number | undefined;
  #action: BannerAction | null = null;

  constructor(actions: BannerActions) {
    byId('banner-action', HTMLButtonElement).addEventListener('click', () => {
      if (this.#action === 'retry') actions.retry();
      else actions.create();
    });
    byId('banner-discard', HTMLButtonElement).addEventListener('click', () => actions.discard());
  }

  draw(banner: Banner | null, live: boolean): void {
    const before = this.#shown;
    const trouble = before === 'lost' || before === 'waiting';
    if (banner === null && before === 'back' && live) return; // its timer runs
    clearTimeout(this.#back);
    if (banner === null && trouble && live) {
      this.#shown = 'back';
      const text = before === 'lost' ? 'Connected again.' : 'The sandbox is back.';
      this.#fill({ kind: 'back', text, detail: '', action: null, kept: '' });
      this.#back = window.setTimeout(() => {
        this.#shown = null;
        setHidden(this.#box, true);
      }, backMs);
      return;
    }
    this.#shown = banner?.kind ?? null;
    if (banner === null) setHidden(this.#box, true);
    else this.#fill(banner);
  }

  #fill({ kind, text, detail, action, kept }: Omit<Banner, 'kind'> & { kind: string }): void {
    setHidden(this.#box, false);
    setAttribute(this.#box, 'data-kind', kind);
    setText('banner-text', text);
    setText('banner-detail', detail);
    setText('banner-kept', kept);
    setHidden('banner-discard', kept === '');
    const button = byId('banner-action', HTMLButtonElement);
    this.#action = action;
    setHidden(button, action === null);
    setText(button, action === 'new-terminal' ? 'New terminal' : 'Try now');
  }
}
