// The chat's connection: entries are pushed by one stream for all browser tabs,
// what the person does is a request each.

import { ApiError, backoff, call, Follow, pause, type Platform, type Session } from '@fairlead/core';
import { Conversations, unknown, type BrowserTab, type Entry, type Row, type Standing } from './model.ts';

export interface FeedHooks {
  changed(): void;
  connected(connected: boolean): void;
  over(error: ApiError): void;
  problem(text: string): void;
  unanswered(): void; // an answer to a question is lost
  address(): string | undefined; // of the person's tab, while she shares it
}

// What tells that the tabs may be others now. Many such come at once.
const gatherMs = 300;
// The relay has a message carried out for 30 s at most.
const answerMs = 35_000;
const mostTries = 20;
const telling = new Set(['tool_use', 'result', 'agent_done', 'agent_error']);

export class Feed {
  readonly chat = new Conversations();
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

  // now connects at once: there may be a network again.
  now(): void {
    this.#follow.now();
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
      if (telling.has(entry.type ?? '') || !this.chat.knows) this.refresh();
    } else if (name === 'state') {
      if (this.chat.state(value as Standing) || !this.chat.knows) this.refresh();
    } else if (name === 'gap') {
      this.chat.gap();
    } else {
      return;
    }
    this.hooks.changed();
  }

  // say sends a message, which is shown before anybody has it.
  say(text: string): Promise<void> {
    return this.#send(this.chat.say(text, this.platform.uuid()));
  }

  // again sends a message anew that didn't arrive. One that may have arrived keeps
  // its name, so that it is done once.
  again(row: Row): Promise<void> {
    this.chat.take(row);
    return this.#send(this.chat.say(row.text, row.sending === 'lost' && row.name !== undefined ? row.name : this.platform.uuid()));
  }

  // send asks by the message's name until somebody knows what became of it.
  async #send(row: Row): Promise<void> {
    this.hooks.changed();
    const { id } = this.chat.shown;
    const address = this.hooks.address();
    const where = { ...(id > 0 ? { tabId: id } : {}), ...(address === undefined ? {} : { activeTabUrl: address }) };
    for (let tries = 0; ; tries++) {
      try {
        const { queued, position } = await this.#post<{ queued?: boolean; position?: number }>('/sidebar-command', { message: row.text, ...where }, row.name);
        this.chat.answered(row, queued === true ? 'queued' : 'working', queued === true ? `Number ${position ?? '?'} in line` : '');
        break;
      } catch (error) {
        const lost = error instanceof ApiError && (error.unknown || error.status === 503);
        if (lost && tries < mostTries && row.sending === 'sending' && !this.#stopped) {
          await pause(this.platform.clock, backoff(tries, this.platform.random()));
          continue;
        }
        this.chat.answered(row, lost ? 'lost' : 'refused', lost ? unknown : reason(error));
        break;
      }
    }
    this.hooks.changed();
  }

  drop(row: Row): void {
    this.chat.take(row);
    this.hooks.changed();
  }

  // answer answers a question. What becomes of it is pushed, as somebody else's
  // answer is, which may be faster.
  async answer({ question, tool }: Row, allow: boolean): Promise<void> {
    if (question === undefined) return;
    const { id } = this.chat.shown;
    const body = { requestId: question.id, revision: question.revision, allow, ...(id > 0 ? { tabId: id } : {}) };
    if (await this.#tried(this.#settled('/sidebar-agent/answer', body), `Your answer about ${tool ?? 'that'} was not taken`)) return;
    this.hooks.unanswered();
    this.hooks.changed();
  }

  async halt(): Promise<void> {
    await this.#tried(this.#post('/sidebar-agent/stop', this.chat.shown.id > 0 ? { tabId: this.chat.shown.id } : {}));
  }

  async clear(): Promise<void> {
    const { shown } = this.chat;
    if (!(await this.#tried(this.#post('/sidebar-chat/clear', shown.id > 0 ? { tabId: shown.id } : {})))) return;
    this.chat.clear(shown);
    this.hooks.changed();
  }

  // show looks at another tab of the sandbox's browser, and has that one in front.
  async show(id: number): Promise<void> {
    this.chat.show(id);
    this.hooks.changed();
    if (id !== this.chat.active) await this.#tried(this.#post('/sidebar-tabs/switch', { id }));
  }

  // refresh asks which tabs there are, at once for the reasons of a moment.
  refresh(): void {
    if (this.#stopped || this.#gathering !== undefined) return;
    this.#gathering = this.platform.clock.setTimeout(() => {
      this.#gathering = undefined;
      void this.#list();
    }, gatherMs);
  }

  async #list(): Promise<void> {
    const address = this.hooks.address();
    const query = address === undefined ? '' : `?${new URLSearchParams({ activeUrl: address })}`;
    try {
      const answer = await this.session.ask((origin, grant) => call(`${origin}/sidebar-tabs${query}`, { bearer: grant }, this.platform));
      const { tabs, error } = (await answer.json()) as { tabs?: BrowserTab[]; error?: string };
      if (!Array.isArray(tabs) || error !== undefined) return; // those that are known stay
      this.chat.list(tabs);
      this.hooks.changed();
    } catch {
      // They are asked for again when something happens.
    }
  }

  async #post<T>(path: string, body: unknown, key = this.platform.uuid()): Promise<T> {
    const answer = await this.session.ask((origin, grant) => call(origin + path, { method: 'POST', bearer: grant, body, key, ms: answerMs }, this.platform));
    return (await answer.json()) as T;
  }

  // settled asks by one name until somebody knows what became of it.
  async #settled(path: string, body: unknown): Promise<void> {
    const key = this.platform.uuid();
    for (let tries = 0; ; tries++) {
      try {
        await this.#post(path, body, key);
        return;
      } catch (error) {
        if (!(error instanceof ApiError) || !error.passing || tries >= mostTries || this.#stopped) throw error;
        await pause(this.platform.clock, backoff(tries, this.platform.random()));
      }
    }
  }

  async #tried(attempt: Promise<unknown>, what = ''): Promise<boolean> {
    try {
      await attempt;
      return true;
    } catch (error) {
      this.hooks.problem(what === '' ? reason(error) : `${what}: ${reason(error)}`);
      return false;
    }
  }
}

const reason = (error: unknown): string => (error instanceof ApiError ? error.message : 'The relay gave an answer that makes no sense.');
