// Which commands this browser has taken, and what became of each: on the disk
// before a command is accepted, so that none runs twice, whoever sends it again and
// whenever worker or browser end. It has one writer, the worker; what is in memory
// mirrors the disk.

import type { Area } from './area.ts';
import { skewMs } from './command.ts';
import type { Order } from './checks.ts';
import type { Fault } from './refusal.ts';

const prefix = 'pages.command.';

// What has come of a command. Unknown: its worker died in the middle.
export type Outcome =
  | { status: 'ok'; at: number; durationMs: number; result: { kind: 'cdp.send'; tabId: number; method: string; response: unknown } }
  | { status: 'error'; at: number; durationMs: number; error: Fault }
  | { status: 'unknown'; at: number; durationMs: number };

export interface Entry {
  commandId: string;
  traceId: string;
  tabId: number;
  accepted: number; // when
  deadline: number; // issuedAt + ttlMs
  worker: string; // the one that took it
  reply?: { url: string; callbackToken: string }; // until the outcome is told
  outcome?: Outcome;
  unheard?: true; // the relay knew nothing of the command; it isn't told by itself
  again?: true; // the command was sent again: somebody still waits
  attempt: number; // callbacks sent
}

export interface Limits {
  entries: number;
  bytes: number; // of outcomes that wait to be told
}

export class Ledger {
  #entries: Map<string, Entry> | undefined;
  #reading: Promise<Map<string, Entry>> | undefined;
  #bytes = 0;

  constructor(
    private readonly area: Area,
    private readonly worker: string,
    private readonly now: () => number,
    private readonly limits: Limits = { entries: 4_096, bytes: 4 << 20 },
  ) {}

  // take notes a command, and says whether it is new, was there before, or can't be
  // noted. Two calls for one id are never both new.
  async take(order: Pick<Order, 'commandId' | 'traceId' | 'issuedAt' | 'ttlMs' | 'target' | 'reply'>): Promise<'new' | 'seen' | 'full'> {
    const entries = await this.#all();
    if (entries.has(order.commandId)) return this.#settled(order.commandId);
    if (entries.size >= this.limits.entries) await this.prune();
    if (entries.has(order.commandId)) return this.#settled(order.commandId);
    if (entries.size >= this.limits.entries) return 'full';
    const entry: Entry = {
      commandId: order.commandId, traceId: order.traceId, tabId: order.target.tabId, accepted: this.now(),
      deadline: order.issuedAt + order.ttlMs, worker: this.worker, reply: order.reply, attempt: 0,
    };
    entries.set(entry.commandId, entry);
    const noted = this.#write(entry);
    this.#noting.set(entry.commandId, noted);
    try {
      await noted;
      return 'new';
    } catch {
      entries.delete(entry.commandId); // nothing has run
      return 'full';
    } finally {
      this.#noting.delete(entry.commandId);
    }
  }

  readonly #noting = new Map<string, Promise<void>>();

  // settled waits until a command is on the disk that is being noted.
  async #settled(id: string): Promise<'seen' | 'full'> {
    try {
      await this.#noting.get(id);
      return 'seen';
    } catch {
      return 'full';
    }
  }

  // end notes what has come of a command. What is too much to keep beside the
  // others gives way to a word about that.
  async end(id: string, outcome: Outcome): Promise<Entry | undefined> {
    const entry = (await this.#all()).get(id);
    if (entry === undefined || entry.outcome !== undefined) return undefined;
    const size = sizeOf(outcome);
    const fits = this.#bytes + size <= this.limits.bytes;
    entry.outcome = fits ? outcome : { status: 'error', at: outcome.at, durationMs: outcome.durationMs, error: { name: 'LimitError', message: 'too many answers wait to be sent' } };
    this.#bytes += sizeOf(entry.outcome);
    await this.#write(entry).catch(() => undefined); // it is told all the same, by this worker
    return entry;
  }

  // sent notes that a callback is under way for the nth time.
  async sent(entry: Entry): Promise<void> {
    entry.attempt++;
    await this.#write(entry).catch(() => undefined);
  }

  // unheard notes that the relay knows nothing of a command. One that was begun anew
  // does, once it is told of it: until then the outcome waits.
  async unheard(entry: Entry): Promise<void> {
    entry.unheard = true;
    await this.#write(entry).catch(() => undefined);
  }

  // again notes that a command was sent again. It returns the command if nobody has
  // heard yet what came of it.
  async again(id: string): Promise<Entry | undefined> {
    const entry = (await this.#all()).get(id);
    if (entry?.reply === undefined) return undefined;
    if (entry.again !== true || entry.unheard === true) {
      entry.again = true;
      delete entry.unheard;
      await this.#write(entry).catch(() => undefined);
    }
    return entry;
  }

  // told notes that nobody is to be told any more. What it was is forgotten; that it
  // was is not.
  async told(entry: Entry): Promise<void> {
    if (entry.reply === undefined) return;
    this.#bytes -= sizeOf(entry.outcome);
    delete entry.reply;
    delete entry.unheard;
    delete entry.again;
    if (entry.outcome !== undefined) entry.outcome = { status: 'unknown', at: entry.outcome.at, durationMs: entry.outcome.durationMs };
    await this.#write(entry).catch(() => undefined);
  }

  // lost are the commands that a worker before this one took and didn't end.
  async lost(): Promise<Entry[]> {
    return [...(await this.#all()).values()].filter((e) => e.outcome === undefined && e.worker !== this.worker);
  }

  // untold are those whose outcome somebody is still to be told.
  async untold(): Promise<Entry[]> {
    return [...(await this.#all()).values()].filter((e) => e.outcome !== undefined && e.reply !== undefined);
  }

  // busy reports whether anything is still to be done.
  async busy(): Promise<boolean> {
    return [...(await this.#all()).values()].some((e) => e.reply !== undefined);
  }

  // prune forgets what is too old to be run by any clock: twice the skew past its
  // deadline.
  async prune(): Promise<void> {
    const entries = await this.#all();
    const old = [...entries.values()].filter((e) => this.now() > e.deadline + 2 * skewMs && (e.reply === undefined || e.outcome !== undefined));
    for (const { commandId, reply, outcome } of old) {
      entries.delete(commandId);
      if (reply !== undefined) this.#bytes -= sizeOf(outcome);
    }
    if (old.length > 0) await this.area.remove(old.map((e) => prefix + e.commandId)).catch(() => undefined);
  }

  #write(entry: Entry): Promise<void> {
    return this.area.set({ [prefix + entry.commandId]: { ...entry } });
  }

  async #all(): Promise<Map<string, Entry>> {
    if (this.#entries !== undefined) return this.#entries;
    this.#reading ??= this.#read();
    this.#entries = await this.#reading.catch((e: unknown) => {
      this.#reading = undefined;
      throw e;
    });
    return this.#entries;
  }

  async #read(): Promise<Map<string, Entry>> {
    const entries = new Map<string, Entry>();
    for (const [key, value] of Object.entries(await this.area.get(null))) {
      if (!key.startsWith(prefix)) continue;
      const entry = value as Entry;
      entries.set(entry.commandId, entry);
      if (entry.reply !== undefined) this.#bytes += sizeOf(entry.outcome);
    }
    return entries;
  }
}

const sizeOf = (outcome: Outcome | undefined): number => (outcome === undefined ? 0 : JSON.stringify(outcome).length);
