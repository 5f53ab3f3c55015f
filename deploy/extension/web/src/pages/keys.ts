// The control plane's keys, as it publishes them at its own address. They are kept
// beyond the worker's life, an hour at most.

import type { Area } from './area.ts';
import { boundedText } from './bounded.ts';
import { type decode, KeySet, unknownKey, wrongSignature } from './jws.ts';
import { auth, Refusal } from './refusal.ts';

const oldestMs = 3_600_000;
const betweenMs = 30_000; // from one refresh that a command causes to the next

const stored = 'pages.keys';

interface Kept {
  text: string;
  fetched: number;
  tried: number; // when a command last caused a refresh
}

export interface Source {
  area: Area; // gone with the browser
  builtIn: string; // a JWK set, for where there is no fetch
  fetch: (() => Promise<string>) | undefined;
  now: () => number;
}

export class Keys {
  #set: KeySet | undefined;
  #kept: Kept = { text: '', fetched: 0, tried: 0 };
  #restored: Promise<void> | undefined;
  #flight: Promise<void> | undefined;

  constructor(private readonly source: Source) {}

  // verify throws an AuthError unless one of the keys has signed the token. Keys
  // that don't know it, or know better, are asked for once more.
  async verify(token: ReturnType<typeof decode>): Promise<void> {
    this.#restored ??= this.#restore();
    await this.#restored;
    if (!this.#young()) {
      await this.#refresh();
      if (!this.#young()) throw auth('the signing keys can’t be had at the moment');
      await this.#now().verify(token);
      return;
    }
    const used = this.#now();
    try {
      await used.verify(token);
    } catch (e) {
      if (!(e instanceof Refusal) || (e.message !== unknownKey && e.message !== wrongSignature)) throw e;
      if (this.#now() === used) await this.#refresh();
      if (this.#now() === used) throw e;
      await this.#now().verify(token);
    }
  }

  #now(): KeySet {
    return this.#set ?? KeySet.empty;
  }

  #young(): boolean {
    const age = this.source.now() - this.#kept.fetched;
    return this.source.fetch === undefined || (this.#set !== undefined && age >= 0 && age <= oldestMs);
  }

  async #restore(): Promise<void> {
    if (this.source.fetch === undefined) {
      this.#set = await KeySet.read(this.source.builtIn);
      return;
    }
    const { [stored]: kept } = await this.source.area.get(stored);
    if (!isKept(kept)) return;
    this.#kept = kept;
    this.#set = kept.text === '' ? undefined : await KeySet.read(kept.text);
  }

  // refresh asks for the keys, unless that was done only just now. Who comes
  // meanwhile waits for the same answer. A failure leaves what there is.
  #refresh(): Promise<void> {
    if (this.#flight !== undefined) return this.#flight;
    const { fetch, now, area } = this.source;
    const since = now() - this.#kept.tried;
    if (fetch === undefined || (since >= 0 && since < betweenMs)) return Promise.resolve();
    const began = now();
    this.#kept = { ...this.#kept, tried: began };
    this.#flight = (async () => {
      await area.set({ [stored]: this.#kept }); // a worker that dies meanwhile has asked, too
      const text = await fetch();
      const set = await KeySet.read(text);
      if (set === undefined || set.size === 0) return; // it has come from elsewhere: the control plane has a key
      this.#set = set;
      this.#kept = { text, fetched: began, tried: began };
      await area.set({ [stored]: this.#kept });
    })()
      .catch(() => undefined)
      .finally(() => (this.#flight = undefined));
    return this.#flight;
  }
}

function isKept(value: unknown): value is Kept {
  const { text, fetched, tried } = (value ?? {}) as Record<string, unknown>;
  return typeof text === 'string' && typeof fetched === 'number' && typeof tried === 'number';
}

const mostBytes = 64 << 10;

// fetchKeys asks an address for its JWK set: nothing goes along, no redirect is
// followed, and nobody waits for long.
export async function fetchKeys(address: string): Promise<string> {
  const response = await fetch(address, { redirect: 'error', credentials: 'omit', cache: 'no-store', referrerPolicy: 'no-referrer', signal: AbortSignal.timeout(5_000) });
  if (response.status !== 200) throw new Error(`status ${response.status}`);
  return await boundedText(response, mostBytes);
}
