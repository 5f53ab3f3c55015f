// The parts of a multipart answer, as they come in pieces. Pure.

export interface Part {
  type: string; // of its content
  body: Uint8Array<ArrayBuffer>;
}

const mostHeaderBytes = 8 << 10;
// A part larger than this is no picture of a window.
export const mostPartBytes = 8 << 20;

const dash = 0x2d; // with which a delimiter begins
const latin = new TextDecoder('latin1');

// boundaryOf reads the boundary of a Content-Type, '' when it has none.
export function boundaryOf(contentType: string): string {
  if (!/^\s*multipart\//i.test(contentType)) return '';
  const found = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i.exec(contentType);
  return found?.[1] ?? found?.[2] ?? '';
}

export class MultipartParser {
  readonly #delimiter: Uint8Array;
  #rest: Uint8Array<ArrayBuffer> = new Uint8Array(0); // what hasn't been understood yet
  #part: { type: string; length: number | null } | null = null; // whose headers are read; length null: up to the next delimiter
  #searched = 0; // bytes of rest in which no delimiter begins
  #ended = false;

  // An empty boundary is that of an answer without parts: it throws.
  constructor(boundary: string) {
    if (boundary === '') throw new Error('an answer without a boundary has no parts');
    this.#delimiter = new TextEncoder().encode(`--${boundary}`);
  }

  // push takes what comes next and returns the parts that it completes. It
  // throws when that can't be parts.
  push(bytes: Uint8Array<ArrayBuffer>): Part[] {
    const all = new Uint8Array(this.#rest.length + bytes.length);
    all.set(this.#rest);
    all.set(bytes, this.#rest.length);
    this.#rest = all;
    const parts: Part[] = [];
    while (!this.#ended && (this.#part === null ? this.#head() : this.#body(parts)));
    return parts;
  }

  // head reads a delimiter and the headers behind it, once all of them are there.
  #head(): boolean {
    const at = this.#find(0);
    if (at < 0) {
      // What precedes the first part says nothing.
      this.#drop(Math.max(0, this.#rest.length - this.#delimiter.length + 1));
      return false;
    }
    this.#drop(at);
    const text = latin.decode(this.#rest.subarray(this.#delimiter.length, mostHeaderBytes));
    if (text.startsWith('--')) {
      this.#ended = true;
      return false;
    }
    const end = text.indexOf('\r\n\r\n');
    if (end < 0) {
      if (this.#rest.length >= mostHeaderBytes) throw new Error('the headers of a part have no end');
      return false;
    }
    this.#part = headersOf(text.slice(0, end));
    this.#drop(this.#delimiter.length + end + 4);
    return true;
  }

  #body(parts: Part[]): boolean {
    const { type, length } = this.#part as { type: string; length: number | null };
    let end = length ?? -1;
    if (length === null) {
      const at = this.#find(this.#searched);
      this.#searched = Math.max(0, this.#rest.length - this.#delimiter.length - 1);
      if (at >= 0) end = Math.max(0, at - 2); // a line break belongs to the delimiter
    }
    if (Math.max(end, length === null && end < 0 ? this.#rest.length : 0) > mostPartBytes) throw new Error('a part is too large');
    if (end < 0 || this.#rest.length < end) return false;
    parts.push({ type, body: this.#rest.slice(0, end) });
    this.#part = null;
    this.#drop(end);
    return true;
  }

  #drop(bytes: number): void {
    if (bytes > 0) this.#rest = this.#rest.slice(bytes);
    this.#searched = 0;
  }

  // find is where the next delimiter is, from on.
  #find(from: number): number {
    for (let at = this.#rest.indexOf(dash, from); at >= 0; at = this.#rest.indexOf(dash, at + 1)) {
      if (at + this.#delimiter.length > this.#rest.length) return -1;
      if (this.#delimiter.every((byte, i) => this.#rest[at + i] === byte)) return at;
    }
    return -1;
  }
}

function headersOf(text: string): { type: string; length: number | null } {
  let type = '';
  let length: number | null = null;
  for (const line of text.split('\r\n')) {
    const colon = line.indexOf(':');
    const value = line.slice(colon + 1).trim();
    const name = line.slice(0, Math.max(colon, 0)).trim().toLowerCase();
    if (name === 'content-type') type = value.split(';')[0]?.trim().toLowerCase() ?? '';
    if (name !== 'content-length') continue;
    if (!/^\d{1,9}$/.test(value)) throw new Error('a part of no known length');
    length = Number(value);
  }
  return { type, length };
}
