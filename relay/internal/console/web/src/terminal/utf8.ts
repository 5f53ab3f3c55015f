// xterm.js loses characters that are cut between two writes when a byte of
// theirs is 0x80, so each write ends with a whole one.

const none = new Uint8Array();

// A Joiner holds back the beginning of a character until its rest comes.
export class Joiner {
  #held = none; // at most 3 bytes

  // join returns what can be written now: what was held, and of bytes all but
  // the beginning of a last character.
  join(bytes: Uint8Array): Uint8Array {
    const all = this.#held.length === 0 ? bytes : Uint8Array.of(...this.#held, ...bytes);
    const cut = all.length - unfinished(all);
    this.#held = all.slice(cut);
    return all.subarray(0, cut);
  }

  // drop forgets what is held: something else takes the output's place.
  drop(): void {
    this.#held = none;
  }
}

// unfinished returns how many bytes at the end begin a character that isn't
// whole.
export function unfinished(bytes: Uint8Array): number {
  for (let n = 1; n <= Math.min(3, bytes.length); n++) {
    const byte = bytes[bytes.length - n] ?? 0;
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) return n < characterBytes(byte) ? n : 0;
  }
  return 0;
}

// characterBytes returns how long a character is that begins with byte.
function characterBytes(byte: number): number {
  if (byte >= 0xf0) return byte < 0xf5 ? 4 : 1;
  return byte >= 0xe0 ? 3 : 2;
}
