// The place of "Signed-in sites" beside the terminal. The panel is loaded when it
// is first opened.

import type { Session } from '@fairlead/core';
import { byId, setHidden, setText } from '../ui/dom.ts';
import type { Side, SidePanel } from '../ui/side.ts';
import type { SyncPanel, SyncOptions } from './panel.ts';

export class Sync implements SidePanel {
  #panel: SyncPanel | undefined;
  #isOpen = false;
  #loading = false;

  constructor(private readonly session: Session, side: Side, private readonly options: SyncOptions) {
    side.add('sync', this);
  }

  opened(): void {
    this.#isOpen = true;
    byId('sync-close', HTMLButtonElement).focus();
    if (this.#panel !== undefined) this.#panel.opened();
    else void this.#load();
  }

  closed(): void {
    this.#isOpen = false;
    this.#panel?.closed();
  }

  async #load(): Promise<void> {
    if (this.#loading) return;
    this.#loading = true;
    this.#say('Loading…');
    try {
      const { SyncPanel } = await import('./panel.ts');
      this.#say('');
      this.#panel = new SyncPanel(this.session, this.options);
      if (this.#isOpen) this.#panel.opened();
    } catch {
      this.#say('This can’t be loaded. Close and open it to try again.');
    } finally {
      this.#loading = false;
    }
  }

  #say(text: string): void {
    setText('sync-note', text);
    setHidden('sync-note', text === '');
  }
}
