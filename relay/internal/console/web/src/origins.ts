// The relays that this page may use, and the one it uses now. Pure but for
// what remember does.

export class Origins {
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
  moved(origin: string): boolean {
    if (!this.#list.includes(origin)) return false;
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
