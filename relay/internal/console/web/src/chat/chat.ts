// The chat's place beside the terminal. The panel is loaded when it is first opened.

import type { Session } from '@fairlead/core';
import { byId, setText } from '../ui/dom.ts';
import type { Side, SidePanel } from '../ui/side.ts';
import { tab, unsent } from '../ui/storage.ts';
import type { ChatPanel, ChatPanelOptions } from './panel.ts';

// chat.css has the panel beside the terminal on wider screens.
const narrow = matchMedia('(max-width: 720px)');

export class Chat implements SidePanel {
  #panel: ChatPanel | undefined;
  #isOpen = false;
  #loading = false;
  readonly #toggle: () => void;

  constructor(private readonly session: Session, side: Side, private readonly options: ChatPanelOptions) {
    this.#toggle = side.add('chat', this);
    if (tab.get(unsent(options.you, session.id)) !== null) void this.#load(); // it goes on sending
  }

  // open shows a conversation.
  open(conversation: string): void {
    tab.set('chat', conversation);
    if (this.#isOpen) this.#panel?.open(conversation);
    else this.#toggle();
  }

  // aside closes the panel where there is room for it or a terminal alone.
  aside(): void {
    if (this.#isOpen && narrow.matches) this.#toggle();
  }

  // renamed says that terminals may have other names, or come to be known.
  renamed(): void {
    this.#panel?.renamed();
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
