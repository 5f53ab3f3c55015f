// Which terminals the session has, and when to ask for them again.

import { ApiError, backoff, pause, type Session, type TerminalInfo } from '@fairlead/core';
import { labels } from './model.ts';

// Everybody who watches hears of a new terminal at once. So many of them ask for
// the list over a moment that grows with their number.
const newsPerViewerMs = 2;
const newsMostMs = 5_000;
// How often a page without a terminal, which nobody tells, looks for one.
const emptyMs = 3_000;

export class TerminalList {
  #all: TerminalInfo[] = []; // the oldest first
  #asked = 0;
  #answered = 0; // the latest request that was answered
  #timer: number | undefined;

  constructor(private readonly session: Session, private readonly changed: () => void) {}

  get all(): TerminalInfo[] {
    return this.#all;
  }

  get running(): TerminalInfo[] {
    return this.#all.filter((terminal) => !terminal.exited);
  }

  // labels are what the terminals are called, by their ids.
  get labels(): Map<string, string> {
    return labels(this.#all);
  }

  find(id: string): TerminalInfo | undefined {
    return this.#all.find((terminal) => terminal.id === id);
  }

  async read(): Promise<void> {
    const turn = ++this.#asked;
    const list = await this.session.terminals();
    if (turn < this.#answered) return; // a later answer was faster
    this.#answered = turn;
    this.#all = list.sort((a, b) => a.created_at - b.created_at || (a.id < b.id ? -1 : 1));
    this.changed();
  }

  // readAgain leaves the list as it is where that fails: the next time will do, and
  // the banner tells about the connection.
  readAgain(): void {
    this.read().catch(() => {});
  }

  // readFirst waits for a sandbox that isn't there yet. missing is called when it
  // has to.
  async readFirst(missing: () => void): Promise<void> {
    for (let failures = 1; ; failures++) {
      try {
        return await this.read();
      } catch (error) {
        if (!(error instanceof ApiError) || !error.passing) throw error;
        missing();
        await pause(this.session.platform.clock, backoff(failures, Math.random()));
      }
    }
  }

  // news: the session has other terminals, or other plugins, than before, and so
  // many people heard of it. What is heard until the list is asked for is answered by
  // it as well. also is called when that is.
  news(viewers: number, also: () => void): void {
    if (this.#timer !== undefined) return;
    this.#timer = window.setTimeout(() => {
      this.#timer = undefined;
      this.readAgain();
      also();
    }, Math.random() * Math.min(newsMostMs, viewers * newsPerViewerMs));
  }

  // lookOut waits for the first terminal of a session that has none, for as long
  // as that is wanted.
  lookOut(wanted: () => boolean, found: (id: string) => void): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(async () => {
      this.#timer = undefined;
      if (!document.hidden) await this.read().catch(() => {});
      const [first] = this.running;
      if (!wanted()) return;
      if (first === undefined) this.lookOut(wanted, found);
      else found(first.id);
    }, emptyMs);
  }
}
