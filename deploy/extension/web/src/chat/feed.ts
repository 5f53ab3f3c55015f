// The chat's connection: entries are pushed by one stream for all browser tabs,
// what the person does is a request each.

import { ApiError, call, Follow, type Platform, type Session } from '@fairlead/core';
import { Conversations, type Entry, type Row, type Standing } from './model.ts';

// A BrowserTab is one of the sandbox's Chromium.
export interface BrowserTab {
  id: number;
  url: string;
  title: string;
  active: boolean;
}

export interface FeedHooks {
  changed(): void;
  connected(connected: boolean): void;
  over(error: ApiError): void;
  problem(text: string): void;
  address(): string | undefined; // of the person's tab, while she shares it
}

// What tells that the tabs may be others now. Many such come at once.
const gatherMs = 300;
const telling = new Set(['tool_use', 'result', 'agent_done', 'agent_error']);

export class Feed {
  readonly chat = new Conversations();
  tabs: BrowserTab[] = [];
  readonly #follow: Follow;
  #gathering: unknown;
  #stopped = false;

  constructor(
    private readonly session: Session,
    private readonly hooks: FeedHooks,
    private readonly platform: Platform,
  ) {
    this.#follow = new Follow({
      open: (_, signal, freshGrant) =>
        session.ask((origin, grant) => call(`${origin}/sidebar-chat/stream?after=${this.chat.mark}`, { bearer: grant, signal, headers: { Accept: 'text/event-stream' } }, platform), freshGrant),
      event: ({ name, data }) => this.#event(name, data),
      connected: (connected) => {
        if (connected) this.refresh();
        hooks.connected(connected);
      },
      over: (error) => hooks.over(error),
    }, platform);
  }

  start(): void {
    this.#follow.start();
  }

  stop(): void {
    this.#stopped = true;
    this.platform.clock.clearTimeout(this.#gathering);
    this.#follow.stop();
  }

  #event(name: string, data: string): void {
    let value: unknown;
    try {
      value = JSON.parse(data);
    } catch {
      return;
    }
    if (typeof value !== 'object' || value === null) return;
    if (name === 'entry') {
      const entry = value as Entry;
      this.chat.entry(entry);
      if (telling.has(entry.type ?? '')) this.refresh();
    } else if (name === 'state') {
      if (this.chat.state(value as Standing)) this.refresh();
    } else {
      return;
    }
    this.hooks.changed();
  }

  // say sends a message, which is shown before anybody has it.
  async say(text: string): Promise<void> {
    const row = this.chat.say(text);
    this.hooks.changed();
    const address = this.hooks.address();
    try {
      const { queued, position } = await this.#post<{ queued?: boolean; position?: number }>('/sidebar-command', { message: text, ...(address === undefined ? {} : { activeTabUrl: address }) });
      this.chat.answered(row, queued === true ? 'queued' : 'working', queued === true ? `Number ${position ?? '?'} in line` : '');
    } catch (error) {
      const lost = error instanceof ApiError && error.unknown;
      this.chat.answered(row, lost ? 'lost' : 'refused', lost ? 'Nobody knows whether this arrived' : reason(error));
    }
    this.hooks.changed();
  }

  // again sends a message anew that didn't arrive.
  async again(row: Row): Promise<void> {
    this.chat.take(row);
    await this.say(row.text);
  }

  drop(row: Row): void {
    this.chat.take(row);
    this.hooks.changed();
  }

  async halt(): Promise<void> {
    await this.#tried(this.#post('/sidebar-agent/stop', { tabId: this.chat.shown.id }));
  }

  async clear(): Promise<void> {
    if (!(await this.#tried(this.#post('/sidebar-chat/clear', {})))) return;
    this.chat.clear();
    this.hooks.changed();
  }

  // show looks at another tab of the sandbox's browser, and has that one in front.
  async show(id: number): Promise<void> {
    this.chat.show(id);
    this.hooks.changed();
    if (id !== this.chat.active) await this.#tried(this.#post('/sidebar-tabs/switch', { id }));
  }

  // refresh asks which tabs there are, at once for many reasons.
  refresh(): void {
    this.platform.clock.clearTimeout(this.#gathering);
    if (!this.#stopped) this.#gathering = this.platform.clock.setTimeout(() => void this.#list(), gatherMs);
  }

  async #list(): Promise<void> {
    const address = this.hooks.address();
    const query = address === undefined ? '' : `?${new URLSearchParams({ activeUrl: address })}`;
    try {
      const answer = await this.session.ask((origin, grant) => call(`${origin}/sidebar-tabs${query}`, { bearer: grant }, this.platform));
      const { tabs } = (await answer.json()) as { tabs?: BrowserTab[] };
      this.tabs = Array.isArray(tabs) ? tabs.slice(0, 64) : [];
      this.hooks.changed();
    } catch {
      // They are asked for again when something happens.
    }
  }

  async #post<T>(path: string, body: unknown): Promise<T> {
    const answer = await this.session.ask((origin, grant) => call(origin + path, { method: 'POST', bearer: grant, body }, this.platform));
    return (await answer.json()) as T;
  }

  async #tried(attempt: Promise<unknown>): Promise<boolean> {
    try {
      await attempt;
      return true;
    } catch (error) {
      this.hooks.problem(reason(error));
      return false;
    }
  }
}

const reason = (error: unknown): string => (error instanceof ApiError ? error.message : 'The relay gave an answer that makes no sense.');
