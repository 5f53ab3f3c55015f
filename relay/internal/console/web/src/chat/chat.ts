// The chat's place beside the terminal. The panel is loaded when it is first opened.

import type { Session } from '@fairlead/core';
import { byId, setText } from '../ui/dom.ts';
import type { Side, SidePanel } from '../ui/side.ts';
import { tab } from '../ui/storage.ts';
import type { ChatPanel, ChatPanelOptions } from './panel.ts';

export class Chat implements SidePanel {
  #panel: ChatPanel | undefined;
  #isOpen = false;
  #loading = false;
  readonly #toggle: () => void;

  constructor(private readonly session: Session, side: Side, private readonly options: ChatPanelOptions) {
    this.#toggle = side.add('chat', this);
  }

  // open shows a conversation.
  open(conversation: string): void {
    tab.set('chat', conversation);
    if (this.#isOpen) this.#panel?.open(conversation);
    else this.#toggle();
  }

  opened(): void {
    this.#isOpen = true;
    if (this.#panel !== undefined) return this.#panel.opened();
    byId('chat-close', HTMLButtonElement).focus();
    void this.#load();
  }

  closed(): void {
    this.#isOpen = false;
    this.#panel?.closed();
  }

  async #load(): Promise<void> {
    if (this.#loading) return;
    this.#loading = true;
    setText('chat-problem', 'Loading…');
    try {
      const { ChatPanel } = await import('./panel.ts');
      setText('chat-problem', '');
      this.#panel = new ChatPanel(this.session, this.options);
      if (this.#isOpen) this.#panel.opened();
    } catch {
      setText('chat-problem', 'The chat can’t be loaded. Close and open it to try again.');
    } finally {
      this.#loading = false;
    }
  }
}
