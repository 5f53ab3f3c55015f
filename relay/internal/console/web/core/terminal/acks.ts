// When to acknowledge output. The relay sends no more than 256 KiB ahead of what is
// acknowledged, and slows the terminal down to what its controller renders. Pure;
// socket.ts keeps the timer.

// So much is acknowledged at once, long before the relay would have to wait.
export const ackBytes = 32 << 10;
// Less than that is acknowledged so often.
export const ackMs = 200;

export interface Due {
  send: boolean; // acknowledge now
  laterMs: number | null; // call due again after so many milliseconds
}

const nothing: Due = { send: false, laterMs: null };

export class Acks {
  #said = 0;
  #saidAt = -Infinity;
  #rendered = 0;

  // offset goes into the acknowledgement: everything before it is rendered.
  get offset(): number {
    return this.#rendered;
  }

  // begin: on a new connection the relay takes everything before offset for
  // acknowledged.
  begin(offset: number): void {
    this.#said = offset;
    this.#saidAt = -Infinity;
    this.#rendered = offset;
  }

  // rendered: everything before offset is on the screen, and everything before
  // received has arrived.
  rendered(offset: number, received: number, now: number): Due {
    if (offset <= this.#rendered) return nothing; // it belongs to the connection before
    this.#rendered = offset;
    return this.due(received, now);
  }

  // due says what to do about what is rendered and not acknowledged.
  due(received: number, now: number): Due {
    const unsaid = this.#rendered - this.#said;
    if (unsaid <= 0) return nothing;
    const wait = this.#saidAt + ackMs - now;
    if (unsaid >= ackBytes || wait <= 0) return { send: true, laterMs: null };
    // Where all is rendered, nothing else will lead to the next acknowledgement.
    return this.#rendered === received ? { send: false, laterMs: wait } : nothing;
  }

  // said: an acknowledgement was sent.
  said(now: number): void {
    this.#said = this.#rendered;
    this.#saidAt = now;
  }
}
