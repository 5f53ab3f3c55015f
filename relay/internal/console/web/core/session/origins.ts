// The relays that a client may use, and the one it uses now. Pure but for what
// remember does.

// For so long a client doesn't follow moved to a relay that stood still.
const shunnedMs = 10_000;

export interface OriginsOptions {
  first: string; // the relay to begin with: a page's own
  all?: readonly string[]; // the others, first among them or not
  remembered?: string | null; // the relay that was in use before, by a page that was loaded anew
  remember?: (origin: string) => void; // learns which one is in use
}

export class Origins {
  readonly #silent = new Map<string, number>(); // relays that stood still, and when
  readonly #list: readonly string[];
  #current: string;
  readonly #remember: (origin: string) => void;

  constructor({ first, all = [], remembered = null, remember = () => {} }: OriginsOptions) {
    this.#list = [first, ...all.filter((origin) => origin !== first)];
    this.#current = remembered !== null && this.#list.includes(remembered) ? remembered : first;
    this.#remember = remember;
  }

  get current(): string {
    return this.#current;
  }

  get count(): number {
    return this.#list.length;
  }

  // others says that there is another relay than the one in use.
  get others(): boolean {
    return this.#list.some((origin) => relayOf(origin) !== relayOf(this.#current));
  }

  // moved: a relay says which other one has the terminal. It returns whether that
  // one is used now. The client uses no relay that it wasn't made with: a page's
  // Content-Security-Policy allows no other. A relay may not know yet that the one
  // it names stands still.
  moved(origin: string, now: number): boolean {
    if (!this.#list.includes(origin) || now - (this.#silent.get(origin) ?? -Infinity) < shunnedMs) return false;
    this.#use(origin);
    return true;
  }

  // failed: the relay at origin didn't answer, or couldn't help. The next one is
  // used, unless the failure of another terminal has led there already.
  failed(origin: string): void {
    if (origin !== this.#current) return;
    const from = this.#list.indexOf(origin);
    const following = [...this.#list.slice(from + 1), ...this.#list.slice(0, from)];
    const next = following.find((other) => relayOf(other) !== relayOf(origin)) ?? following[0];
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
    this.#remember(origin);
  }
}

// relayOf is the same for several names of one relay on this machine: a relay that
// doesn't answer by one name doesn't by another.
function relayOf(origin: string): string {
  return origin.replace(/^(https?:\/\/)(?:localhost|127\.0\.0\.1)(?=:|$)/, '$1loopback');
}

// originOf is the origin of a relay's socket: "wss://a/…" is at "https://a".
export function originOf(socketURL: string): string {
  return new URL(socketURL.replace(/^ws/, 'http')).origin;
}
