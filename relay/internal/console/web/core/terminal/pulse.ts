// When to ask a relay whether it is there, and when to take it for gone: one
// that stands still doesn't end its sockets. Pure.

export interface Patience {
  quietMs: number; // without anything coming before it is asked
  answerMs: number; // for anything to come then
}

// Who looks at the page notices at once; where there is no other relay to go to,
// this one gets longer.
export const seen: Patience = { quietMs: 1_500, answerMs: 1_500 };
export const alone: Patience = { quietMs: 1_500, answerMs: 8_500 };
// Control is kept for 10 s: enough for who has it in a page that nobody sees.
export const unseen: Patience = { quietMs: 4_000, answerMs: 3_000 };
// Everybody else's hidden pages cost next to nothing, and keep intermediaries
// from closing a connection that says nothing.
export const idle: Patience = { quietMs: 25_000, answerMs: 5_000 };

// A timer that is so late slept with the machine: what came since is not read yet.
const lateMs = 2_000;

export type Act = 'ask' | 'leave' | null;

export class Pulse {
  #heard = 0;
  #asked: number | null = null;
  #tried = false; // it was asked, at once: of one that never answers, silence says nothing
  #answers = false;

  heard(now: number, pong: boolean): void {
    this.#heard = now;
    this.#asked = null;
    this.#answers ||= pong;
  }

  // due says what to do now, and when to look again.
  due(now: number, { quietMs, answerMs }: Patience): { act: Act; laterMs: number } {
    if (this.#asked === null) {
      const left = this.#heard + quietMs - now;
      if (left > 0 && this.#tried) return { act: null, laterMs: left };
      this.#asked = now;
      this.#tried = true;
      return { act: 'ask', laterMs: answerMs };
    }
    const late = now - this.#asked - answerMs;
    if (late < 0) return { act: null, laterMs: -late };
    if (this.#answers && late < lateMs) return { act: 'leave', laterMs: answerMs };
    this.#asked = this.#answers ? now : null;
    if (this.#answers) return { act: 'ask', laterMs: answerMs };
    this.#heard = now; // not one of those that answer
    return { act: null, laterMs: Math.max(quietMs, idle.quietMs) };
  }
}
