// What the person types, on its way to the socket: in pieces that the relay
// accepts, no faster than the socket takes them.

export const pieceBytes = 16 << 10; // the relay closes the socket above 64 KiB
export const bufferedBytes = 64 << 10; // wait while the socket holds more than this
export const queueBytes = 8 << 20; // a larger paste is refused as a whole
const pollMs = 10; // a WebSocket doesn't tell when its buffer drains

export interface Wire {
  readonly bufferedAmount: number;
  send(data: Uint8Array<ArrayBuffer>): void;
}

const bracketEnd = '\x1b[201~';

export class Upstream {
  #queue: Uint8Array<ArrayBuffer>[] = [];
  #bytes = 0;
  #timer: unknown;

  constructor(
    private readonly wire: Wire,
    private readonly later: (run: () => void, ms: number) => unknown = (run, ms) => setTimeout(run, ms),
  ) {}

  // pending is how many bytes have not been given to the socket.
  get pending(): number {
    return this.#bytes;
  }

  // push takes all of data or, when that would overfill the queue, nothing.
  push(data: Uint8Array<ArrayBuffer>): boolean {
    if (this.#bytes + data.length > queueBytes) return false;
    if (data.length > 0) this.#queue.push(data);
    this.#bytes += data.length;
    this.#pump();
    return true;
  }

  // interrupt drops what waits, so that Ctrl+C doesn't stand in line behind a
  // paste. A bracketed paste that is cut short still gets its closing bracket.
  interrupt(): number {
    const dropped = this.#bytes;
    const last = this.#queue.at(-1);
    const bracketed = last !== undefined && new TextDecoder().decode(last.subarray(-bracketEnd.length)) === bracketEnd;
    this.clear();
    if (bracketed) this.push(new TextEncoder().encode(bracketEnd));
    return dropped;
  }

  clear(): void {
    this.#queue = [];
    this.#bytes = 0;
  }

  #pump(): void {
    if (this.#timer !== undefined) return;
    for (let first = this.#queue[0]; first !== undefined; first = this.#queue[0]) {
      if (this.wire.bufferedAmount > bufferedBytes) {
        this.#timer = this.later(() => {
          this.#timer = undefined;
          this.#pump();
        }, pollMs);
        return;
      }
      const piece = first.subarray(0, pieceBytes);
      if (piece.length === first.length) this.#queue.shift();
      else this.#queue[0] = first.subarray(piece.length);
      this.#bytes -= piece.length;
      this.wire.send(piece);
    }
  }
}
