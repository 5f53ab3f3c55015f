// When to tell the relay how much is on the screen. The relay sends no more
// than 256 KiB ahead of that, and lets the terminal run no faster than its
// controller sees it. Pure; socket.ts keeps the timer.

// Half of what the relay allows to render without saying so, so that it never
// waits for us while we are rendering.
export const ackBytes = 32 << 10;
// Less than that is told a few times a second.
export const ackMs = 200;

export interface Due {
  send: boolean; // say now how much is rendered
  laterMs: number | null; // look again after so many milliseconds
}

const nothing: Due = { send: false, laterMs: null };

export class Acks {
  #said = 0;
  #saidAt = -Infinity;
  #rendered = 0;

  // offset is what an ack says: everything before it is rendered.
  get offset(): number {
    return this.#rendered;
  }

  // begin: a connection starts where the relay takes everything before offset
  // for rendered.
  begin(offset: number): void {
    this.#said = offset;
    this.#saidAt = -Infinity;
    this.#rendered = offset;
  }

  // rendered: everything before offset is, of what was received up to received.
  rendered(offset: number, received: number, now: number): Due {
    if (offset <= this.#rendered) return nothing; // of the connection before
    this.#rendered = offset;
    return this.due(received, now);
  }

  // due says what to do about what is rendered and not said.
  due(received: number, now: number): Due {
    const unsaid = this.#rendered - this.#said;
    if (unsaid <= 0) return nothing;
    const wait = this.#saidAt + ackMs - now;
    if (unsaid >= ackBytes || wait <= 0) return { send: true, laterMs: null };
    // All is rendered, so that nothing but the time will bring the next ack.
    return this.#rendered === received ? { send: false, laterMs: wait } : nothing;
  }

  // said: an ack was sent.
  said(now: number): void {
    this.#said = this.#rendered;
    this.#saidAt = now;
  }
}
