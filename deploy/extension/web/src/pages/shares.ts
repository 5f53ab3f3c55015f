// Which tabs the person has shared with which sessions, and which sessions there
// are. Both end with the browser, whose tabs' numbers mean nothing to the next one.

import type { Area } from './area.ts';
import { isText } from './checks.ts';
import { validID } from './command.ts';

export const longestMs = 3_600_000;
const mostSessions = 16;
const mostShares = 32;

// A session that a page of ours has named: tabs can be shared with it.
export interface Session {
  id: string;
  name: string;
  origin: string; // whose page it was
}

export interface Share {
  tabId: number;
  sessionId: string;
  name: string;
  expiresAt: number;
  last?: { method: string; at: number; failed: boolean }; // what ran there
}

interface State {
  sessions: Session[];
  shares: Share[];
}

const stored = 'pages.shares';

// readSession reads what a page says of its session.
export function readSession(value: unknown, origin: string): Session | undefined {
  const { id, name } = (value ?? {}) as Record<string, unknown>;
  if (!isText(id) || !validID(id)) return undefined;
  const text = typeof name === 'string' ? name.replace(/\p{C}/gu, ' ').trim().slice(0, 64) : '';
  return { id, name: text === '' ? id : text, origin };
}

export class Shares {
  #state: State | undefined;
  #reading: Promise<State> | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(
    private readonly area: Area,
    private readonly now: () => number,
    private readonly changed: () => void,
  ) {}

  async #all(): Promise<State> {
    this.#reading ??= this.area.get(stored).then(({ [stored]: state }) => (state as State | undefined) ?? { sessions: [], shares: [] });
    this.#state ??= await this.#reading;
    this.#state.shares = this.#state.shares.filter((share) => share.expiresAt > this.now());
    return this.#state;
  }

  // keep writes it down, one write after the other.
  #keep(): Promise<void> {
    this.#writing = this.#writing.then(() => (this.#state === undefined ? undefined : this.area.set({ [stored]: this.#state }))).catch(() => undefined);
    return this.#writing;
  }

  async sessions(): Promise<Session[]> {
    return [...(await this.#all()).sessions];
  }

  // know remembers a session, the latest first. One that is known stays where it is:
  // its page names it again with each worker.
  async know(session: Session): Promise<void> {
    const state = await this.#all();
    const known = state.sessions.find((s) => s.id === session.id && s.origin === session.origin);
    if (known?.name === session.name) return;
    if (known !== undefined) known.name = session.name;
    else state.sessions = [session, ...state.sessions].slice(0, mostSessions);
    await this.#keep();
    this.changed();
  }

  async list(): Promise<Share[]> {
    return [...(await this.#all()).shares];
  }

  // of are the shares that pages of an origin may know.
  async of(origin: string): Promise<Share[]> {
    const { sessions, shares } = await this.#all();
    return shares.filter((share) => sessions.some((s) => s.origin === origin && s.id === share.sessionId));
  }

  // has reports whether a tab is shared with a session now.
  async has(tabId: number, sessionId: string): Promise<boolean> {
    return (await this.#all()).shares.some((s) => s.tabId === tabId && s.sessionId === sessionId);
  }

  // add shares a tab with a session that is known, for an hour at most.
  async add(tabId: number, sessionId: string, ms: number): Promise<boolean> {
    const state = await this.#all();
    const session = state.sessions.find((s) => s.id === sessionId);
    const others = state.shares.filter((s) => s.tabId !== tabId || s.sessionId !== sessionId);
    if (session === undefined || others.length >= mostShares || !(ms > 0)) return false;
    state.shares = [...others, { tabId, sessionId, name: session.name, expiresAt: this.now() + Math.min(ms, longestMs) }];
    await this.#keep();
    this.changed();
    return true;
  }

  // end ends the shares that match.
  async end(which: (share: Share) => boolean): Promise<void> {
    const state = await this.#all();
    const left = state.shares.filter((share) => !which(share));
    if (left.length === state.shares.length) return;
    state.shares = left;
    await this.#keep();
    this.changed();
  }

  // ran notes what ran last in a tab. Nobody waits for it.
  async ran(tabId: number, sessionId: string, method: string, failed: boolean): Promise<void> {
    const share = (await this.#all()).shares.find((s) => s.tabId === tabId && s.sessionId === sessionId);
    if (share === undefined) return;
    share.last = { method, at: this.now(), failed };
    void this.#keep();
    this.changed();
  }

  // next is when the next share ends by itself.
  async next(): Promise<number | undefined> {
    const { shares } = await this.#all();
    return shares.length === 0 ? undefined : Math.min(...shares.map((s) => s.expiresAt));
  }
}
