// A conversation that goes on in a terminal: the way there, what stands here
// meanwhile, and the way back.

import { byId, setHidden, setText } from '../ui/dom.ts';
import { visible } from '../ui/visible.ts';
import { goesOn, type ChatModel } from './model.ts';

// Terminals are the page's.
export interface Terminals {
  may: boolean; // the person may open and close one
  label(id: string): string | undefined;
  show(id: string): void;
  continue(conversation: string): Promise<void>; // in a new one, which is shown
  close(id: string): Promise<void>; // after a question
}

export class Elsewhere {
  readonly #go = byId('chat-continue', HTMLButtonElement);
  readonly #show = byId('chat-show', HTMLButtonElement);
  readonly #end = byId('chat-end', HTMLButtonElement);
  readonly #in = new Map<string, string>(); // terminals, by the conversation that goes on there
  #talk = '';
  #busy = false;

  // back is called when the person has the conversation go on here.
  constructor(private readonly terminals: Terminals, private readonly back: () => void) {
    this.#go.addEventListener('click', () => void this.#while(() => terminals.continue(this.#talk)));
    this.#show.addEventListener('click', () => terminals.show(this.of(this.#talk)));
    this.#end.addEventListener('click', () => void this.#while(async () => {
      await terminals.close(this.of(this.#talk));
      this.back();
    }));
  }

  // of returns the terminal where a conversation goes on, '' if it doesn't.
  of(conversation: string): string {
    return this.#in.get(conversation) ?? '';
  }

  // is notes where a conversation goes on, and reports whether it is back.
  is(conversation: string, terminal = ''): boolean {
    const before = this.of(conversation);
    if (terminal === '') this.#in.delete(conversation);
    else this.#in.set(conversation, terminal);
    return before !== '' && terminal === '';
  }

  draw(m: ChatModel): void {
    this.#talk = m.talk?.id ?? '';
    const { state, why } = goesOn(m, this.terminals.may);
    setHidden(this.#go, state === 'none' || state === 'there');
    this.#go.disabled = state !== 'can' || this.#busy;
    this.#go.title = why;
    setHidden('chat-elsewhere', state !== 'there');
    setText('chat-there', state === 'there' ? `This conversation goes on in ${named(this.terminals.label(m.terminal))}.` : '');
    setHidden(this.#end, !this.terminals.may);
    this.#end.disabled = this.#busy;
  }

  // while does one thing at a time.
  async #while(change: () => Promise<void>): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    try {
      await change();
    } finally {
      this.#busy = false;
    }
  }
}

function named(label: string | undefined): string {
  return label === undefined ? 'a terminal' : `the terminal “${visible(label)}”`;
}
