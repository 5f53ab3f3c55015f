// The relays that this page may use, and the one it uses now. Pure but for
// what remember does.

// How long nobody goes back, on another relay's word, to one that stood still.
const shunnedMs = 10_000;

export class Origins {
  readonly #silent = new Map<string, number>(); // and when
  readonly #list: readonly string[];
  #current: string;

  // list is every relay's origin, own the page's. remembered is the relay that
  // was in use before the page was loaded anew.
  constructor(
    own: string,
    list: readonly string[],
    remembered: string | null,
    private readonly remember: (origin: string) => void,
  ) {
    this.#list = [own, ...list.filter((origin) => origin !== own)];
    this.#current = remembered !== null && this.#list.includes(remembered) ? remembered : own;
  }

  get current(): string {
    return this.#current;
  }

  get count(): number {
    return this.#list.length;
  }

  // moved: a relay says which other one has the terminal. The page may connect
  // to no others than it was told by its own (Content-Security-Policy).
  // It may not know yet that the other one stands still.
  moved(origin: string, now: number): boolean {
    if (!this.#list.includes(origin) || now - (this.#silent.get(origin) ?? -Infinity) < shunnedMs) return false;
    this.#use(origin);
    return true;
  }

  // failed: the relay at origin didn't answer, or couldn't help. The next one
  // is tried, unless another terminal's failure has already led there.
  failed(origin: string): void {
    if (origin !== this.#current) return;
    const next = this.#list[(this.#list.indexOf(origin) + 1) % this.#list.length];
    if (next !== undefined) this.#use(next);
  }

  // silent: the relay at origin doesn't answer any more.
  silent(origin: string, now: number): void {
    this.#silent.set(origin, now);
    this.failed(origin);
  }

  #use(origin: string): void {
    if (origin === this.#current) return;
    this.#current = origin;
    this.remember(origin);
  }
}

// originOf is the origin of a relay's socket: "wss://a/…" is at "https://a".
export function originOf(socketURL: string): string {
  return new URL(socketURL.replace(/^ws/, 'http')).origin;
}
