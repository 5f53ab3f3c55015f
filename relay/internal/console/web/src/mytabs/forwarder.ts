// Carries commands from the relay to the extension, in one of a person's windows
// at a time, and tells the relay which tabs are shared.

import { ApiError, backoff, call, Follow, pause, type Session } from '@fairlead/core';
import { type Envelope, type Extension, type Found, type SharedTab } from './extension.ts';

export interface ForwarderHooks {
  problem(text: string): void; // a command didn't get there
  changed(): void; // there may be news to read
}

export interface ForwarderOptions {
  you: string;
  name: string; // of the session, as its person may read it
  ids: readonly string[]; // of the extensions to look for
  locks: LockManager | undefined;
}

export class Forwarder {
  found: Found | undefined;
  leads = false; // this window forwards
  #follow: Follow | undefined;
  #browser: string | undefined; // that #follow is for
  #known: Found | undefined; // the last one that was found
  #shared: SharedTab[] | undefined; // as the extension said last
  #reporting = false;
  #stale = false; // #shared may not be what was reported last
  #told = ''; // what was reported last, and taken

  constructor(private readonly session: Session, private readonly extension: Extension, private readonly options: ForwarderOptions, private readonly hooks: ForwarderHooks) {
    session.onRenewed(() => this.#again());
  }

  // start waits for its turn: the next window goes on when this one is closed. It is
  // the turn of one session: its commands come under its grants alone.
  start(): void {
    const { locks, you } = this.options;
    if (locks === undefined) return void this.#lead();
    void locks.request(`fairlead-pages ${you} ${this.session.id}`, () => this.#lead());
  }

  // unshare asks the extension to end what the person began there.
  unshare(tab: number): void {
    if (this.found === undefined) return;
    const port = this.extension.connect(this.found.extensionId);
    port.postMessage({ type: 'unshare', tabId: tab, sessionId: this.session.id });
    this.session.platform.clock.setTimeout(() => {
      port.disconnect();
      this.hooks.changed();
    }, 1_000);
  }

  // look finds the extension beside this page.
  async look(): Promise<Found | undefined> {
    this.found = await this.extension.find(this.options.ids, { id: this.session.id, name: this.options.name });
    return this.found;
  }

  // lead goes on until the window is closed.
  async #lead(): Promise<void> {
    this.leads = true;
    const look = async () => {
      const found = await this.look();
      if (found !== undefined) this.#known = found;
      else this.#gone();
      // What comes for one that isn't there any more is still said to the person.
      if (this.#follow === undefined || (found !== undefined && found.browserId !== this.#browser)) this.#open(found?.browserId);
      return found;
    };
    this.extension.follow(look, this.session.id, (tabs) => {
      this.#shared = tabs;
      void this.#report();
    }, new AbortController().signal);
    await new Promise(() => undefined);
  }

  // open follows the commands for a browser; without one, for whichever this is.
  #open(browser?: string): void {
    this.#follow?.stop();
    this.#browser = browser;
    const query = browser === undefined ? '' : `?browser=${browser}`;
    this.#follow = new Follow({
      open: (since, signal, fresh) => this.session.ask((origin, grant) => call(`${origin}/control/stream${query}`, {
        bearer: grant, signal, headers: since === '' ? {} : { 'Last-Event-ID': since },
      }, this.session.platform), fresh),
      event: ({ name, data }) => {
        if (name === 'command') void this.#forward(data);
      },
      connected: (connected) => connected && this.#again(), // whoever answers now may know of nothing
      over: (error) => this.#over(error),
    }, this.session.platform);
    this.#follow.start();
    this.hooks.changed();
  }

  // forward looks into nothing that is signed, and at no time: expired commands are
  // for the extension to refuse.
  async #forward(data: string): Promise<void> {
    try {
      await this.extension.invoke(JSON.parse(data) as Envelope, this.found?.extensionId);
    } catch (error) {
      this.hooks.problem(error instanceof Error ? error.message : String(error));
    }
    this.hooks.changed();
  }

  #over(error: ApiError): void {
    if (error.status !== 404) this.hooks.problem(error.message); // 404: a relay that has no such stream
  }

  // gone ends what an extension shared that was removed, or switched off.
  #gone(): void {
    if (this.#shared === undefined || this.#shared.length === 0) return;
    this.#shared = [];
    void this.#report();
  }

  // again reports what is shared although nothing has changed.
  #again(): void {
    this.#told = '';
    if (this.#shared !== undefined && this.#shared.length > 0) void this.#report();
  }

  // report tells the relay what is shared now: one request at a time, and what has
  // changed meanwhile in the next. The extension also speaks after each command,
  // when nothing of that has changed.
  async #report(): Promise<void> {
    this.#stale = true;
    if (this.#reporting) return;
    this.#reporting = true;
    for (let failures = 0; this.#stale && this.#known !== undefined; ) {
      this.#stale = false;
      const tabs = (this.#shared ?? []).map(({ tabId, title, url, expiresAt }) => ({ tabId, title, url, expiresAt }));
      const body = { ...this.#known, tabs };
      const text = JSON.stringify(body);
      if (text === this.#told) continue;
      this.#told = text; // at once: who wants it told again meanwhile is heard
      try {
        await this.session.request('/tabs', { method: 'PUT', body });
        failures = 0;
        this.hooks.changed();
      } catch (error) {
        this.#told = '';
        if (!(error instanceof ApiError)) throw error;
        if (!error.passing && error.status !== 401) {
          this.hooks.problem(`what is shared could not be told: ${error.message}`);
          continue;
        }
        this.#stale = true;
        await pause(this.session.platform.clock, backoff(++failures, Math.random()));
      }
    }
    this.#reporting = false;
  }
}
