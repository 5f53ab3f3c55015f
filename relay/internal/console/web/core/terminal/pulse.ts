// When to ask a silent relay for a sign of life, and when to leave it. A relay that
// stands still doesn't close its sockets. Pure.

export interface Patience {
  quietMs: number; // after this much silence the relay is pinged
  answerMs: number; // after this much more silence it is left
}

// Somebody looks at the terminal. A relay gets longer where there is no other one
// to go to.
export const seen: Patience = { quietMs: 1_500, answerMs: 1_500 };
export const alone: Patience = { quietMs: 1_500, answerMs: 8_500 };
// Nobody looks, and this person has control, which the relay keeps for 10 s.
export const unseen: Patience = { quietMs: 4_000, answerMs: 3_000 };
// Nobody looks at all others. They are asked seldom, and often enough that
// intermediaries don't close the connection.
export const idle: Patience = { quietMs: 25_000, answerMs: 5_000 };

// A timer that fires so late was asleep with the machine. What came meanwhile may
// not have been read yet, so the relay is asked again.
const lateMs = 2_000;

export type Act = 'ask' | 'leave' | null;

export class Pulse {
  #heard = 0;
  #asked: number | null = null;
  #tried = false; // the relay was asked once, as soon as there was a connection
  #answers = false; // it has answered: only then its silence means something

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
    this.#heard = now; // this relay doesn't answer pings
    return { act: null, laterMs: Math.max(quietMs, idle.quietMs) };
  }
}
