// Input on its way to the program. The outbox numbers it, keeps it until it is
// acknowledged, hands it out again for a new connection, and never under another
// term than it was typed under. Pure; socket.ts sends what it hands out.

import { maxInputBytes } from '../protocol.ts';

export const unackedBytes = 64 << 10; // sent and not acknowledged; also what is kept without a connection
export const queueBytes = 8 << 20; // a larger paste is refused as a whole

export interface Frame {
  seq: number;
  term: number;
  bytes: Uint8Array;
}

const bracketEnd = new TextEncoder().encode('\x1b[201~');

function endsInBracket(bytes: Uint8Array): boolean {
  const tail = bytes.subarray(-bracketEnd.length);
  return tail.length === bracketEnd.length && tail.every((byte, i) => byte === bracketEnd[i]);
}

export class Outbox {
  #sent: Frame[] = []; // not acknowledged yet, by rising seq
  #sentBytes = 0;
  #queue: { term: number; bytes: Uint8Array }[] = []; // not sent yet
  #queueBytes = 0;
  #most = 0; // of queueBytes since the queue was last empty
  #seq = 0;

  // waiting is how many bytes have not been sent.
  get waiting(): number {
    return this.#queueBytes;
  }

  // pending is how many bytes have not been acknowledged, or not even sent.
  get pending(): number {
    return this.#sentBytes + this.#queueBytes;
  }

  // progress is the part of what had to wait in line that has left, in [0, 1].
  get progress(): number {
    return this.#most === 0 ? 1 : 1 - this.#queueBytes / this.#most;
  }

  // push takes all of bytes, typed under term, or nothing when that would be
  // more than may wait. live says that there is a connection.
  push(bytes: Uint8Array, term: number, live: boolean): boolean {
    if (bytes.length === 0) return true;
    if (this.pending + bytes.length > (live ? queueBytes : unackedBytes)) return false;
    this.#queue.push({ term, bytes });
    this.#queueBytes += bytes.length;
    this.#most = Math.max(this.#most, this.#queueBytes);
    return true;
  }

  // next takes the next frame from the queue, or nothing while as much as
  // allowed is unacknowledged.
  next(): Frame | undefined {
    const first = this.#queue[0];
    if (first === undefined) return undefined;
    const room = Math.min(maxInputBytes, unackedBytes - this.#sentBytes);
    const bytes = this.#take(first.term, room);
    if (bytes === undefined) return undefined;
    const frame = { seq: ++this.#seq, term: first.term, bytes };
    this.#sent.push(frame);
    this.#sentBytes += bytes.length;
    return frame;
  }

  // take joins what waits under term, up to room bytes: keys that were typed while
  // nothing could be sent leave as one frame.
  #take(term: number, room: number): Uint8Array | undefined {
    const parts: Uint8Array[] = [];
    let length = 0;
    for (let item = this.#queue[0]; item !== undefined && item.term === term && length < room; item = this.#queue[0]) {
      const part = item.bytes.subarray(0, room - length);
      if (part.length === item.bytes.length) this.#queue.shift();
      else this.#queue[0] = { term, bytes: item.bytes.subarray(part.length) };
      parts.push(part);
      length += part.length;
    }
    if (length === 0) return undefined;
    this.#shrink(length);
    const [only] = parts;
    if (parts.length === 1 && only !== undefined) return only;
    const bytes = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  }

  #shrink(bytes: number): void {
    this.#queueBytes -= bytes;
    if (this.#queueBytes === 0) this.#most = 0;
  }

  // again returns what a new connection must resend, with its old numbers.
  again(): readonly Frame[] {
    return this.#sent;
  }

  // acked: the sandbox has written everything up to seq.
  acked(seq: number): void {
    this.#forget((frame) => frame.seq <= seq);
  }

  // refused: the sandbox will never write seq. It returns how many bytes that were.
  refused(seq: number): number {
    const before = this.#sentBytes;
    this.#forget((frame) => frame.seq === seq);
    return before - this.#sentBytes;
  }

  #forget(which: (frame: Frame) => boolean): void {
    this.#sent = this.#sent.filter((frame) => {
      if (!which(frame)) return true;
      this.#sentBytes -= frame.bytes.length;
      return false;
    });
  }

  // retain drops what waits and was typed under none of terms, and returns how
  // many bytes that were.
  retain(terms: readonly number[]): number {
    const before = this.#queueBytes;
    this.#queue = this.#queue.filter((item) => terms.includes(item.term));
    const left = this.#queue.reduce((sum, item) => sum + item.bytes.length, 0);
    this.#shrink(before - left);
    return before - left;
  }

  // interrupt drops what waits and returns how many bytes that were, so that Ctrl+C
  // doesn't wait behind a paste. A bracketed paste that is cut short still gets its
  // closing bracket.
  interrupt(): number {
    const dropped = this.#queueBytes;
    const last = this.#queue.at(-1);
    this.retain([]);
    if (last !== undefined && endsInBracket(last.bytes)) this.push(bracketEnd, last.term, true);
    return dropped;
  }
}
