// The side panel of a browser's extension, in which conversations of this session
// go on: which these are, and having one of them shown there. The extension's script
// in this page hears an event, and answers by another, within the person's click.

import { call, type Session } from '@fairlead/core';

const request = 'fairlead-panel-show';
const answer = 'fairlead-panel-shown';

// Without an answer for so long there is no extension.
const answerMs = 1_000;

export type Shown = 'opened' | 'closed' | 'absent';

// What the person is told of it.
export const words: Record<Shown, string> = {
  opened: 'It is in the side panel now',
  closed: 'The conversation waits in the side panel: click the extension’s button beside the address bar',
  absent: 'No side panel answers here. The browser needs the fairlead extension, signed in to this relay',
};

interface Tab {
  conversationId?: string;
}

export class SidePanelTabs {
  readonly #conversations = new Set<string>();
  #none = false; // this relay has no side panels
  #asking = false;

  constructor(private readonly session: Session, private readonly changed: () => void) {}

  has(conversation: string): boolean {
    return this.#conversations.has(conversation);
  }

  // read asks which conversations the panel's tabs have. Where that fails the next
  // time will do.
  async read(): Promise<void> {
    if (this.#none || this.#asking) return;
    this.#asking = true;
    try {
      const answered = await this.session.ask((origin, grant) => call(`${origin}/sidebar-tabs`, { bearer: grant }, this.session.platform));
      const { tabs, error } = (await answered.json()) as { tabs?: Tab[]; error?: string };
      if (!Array.isArray(tabs) || error !== undefined) return;
      this.#conversations.clear();
      for (const { conversationId } of tabs) if (typeof conversationId === 'string' && conversationId !== '') this.#conversations.add(conversationId);
      this.changed();
    } catch (error) {
      this.#none = (error as { status?: unknown }).status === 404;
    } finally {
      this.#asking = false;
    }
  }

  // show has the panel show a conversation. It is called from a click: the browser
  // opens a panel only then.
  show(conversation: string): Promise<Shown> {
    const { clock } = this.session.platform;
    return new Promise((resolve) => {
      const over = (shown: Shown) => {
        clock.clearTimeout(timer);
        document.removeEventListener(answer, heard);
        resolve(shown);
      };
      const heard = (event: Event) => over((event as CustomEvent<unknown>).detail === 'opened' ? 'opened' : 'closed');
      const timer = clock.setTimeout(() => over('absent'), answerMs);
      document.addEventListener(answer, heard);
      document.dispatchEvent(new CustomEvent(request, { detail: JSON.stringify({ session: this.session.id, conversation }) }));
    });
  }
}
