// Carries commands from the relay to the extension, in one of a person's windows
// at a time, and tells the relay which tabs are shared.

import { ApiError, backoff, call, Follow, pause, type Session } from '@fairlead/core';
import { type Envelope, type Extension, type Found, type SharedTab } from './extension.ts';

// How often an extension that wasn't there is looked for again.
const lookMs = 30_000;

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
  #shared: SharedTab[] | undefined; // as the extension said last
  #reporting = false;
  #stale = false; // #shared isn't what was reported last

  constructor(private readonly session: Session, private readonly extension: Extension, private readonly options: ForwarderOptions, private readonly hooks: ForwarderHooks) {
    session.onRenewed(() => this.#shared !== undefined && this.#shared.length > 0 && this.#report());
  }

  // start waits for its turn: the next window goes on when this one is closed.
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

  async #lead(): Promise<void> {
    this.leads = true;
    const { clock } = this.session.platform;
    this.#open(await this.look());
    for (;;) { // until the window is closed
      while (this.found === undefined && this.options.ids.length > 0) {
        await pause(clock, lookMs);
        const found = await this.look();
        if (found === undefined) continue;
        this.#follow?.stop(); // it named no browser
        this.#open(found);
      }
      await new Promise(() => undefined);
    }
  }

  // open follows the commands for the browser, or for whichever this is.
  #open(found: Found | undefined): void {
    const browser = found === undefined ? '' : `?browser=${found.browserId}`;
    this.#follow = new Follow({
      open: (since, signal, fresh) => this.session.ask((origin, grant) => call(`${origin}/control/stream${browser}`, {
        bearer: grant, signal, headers: since === '' ? {} : { 'Last-Event-ID': since },
      }, this.session.platform), fresh),
      event: ({ name, data }) => {
        if (name === 'command') void this.#forward(data);
      },
      connected: () => undefined,
      over: (error) => this.#over(error),
    }, this.session.platform);
    this.#follow.start();
    if (found === undefined) return;
    this.extension.follow(found, this.session.id, (tabs) => {
      this.#shared = tabs;
      void this.#report();
    }, new AbortController().signal);
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

  // report tells the relay what is shared now: one request at a time, and what has
  // changed meanwhile in the next.
  async #report(): Promise<void> {
    this.#stale = true;
    if (this.#reporting) return;
    this.#reporting = true;
    for (let failures = 0; this.#stale && this.found !== undefined; ) {
      this.#stale = false;
      const tabs = (this.#shared ?? []).map(({ tabId, title, url, expiresAt }) => ({ tabId, title, url, expiresAt }));
      try {
        await this.session.request('/tabs', { method: 'PUT', body: { browserId: this.found.browserId, extensionId: this.found.extensionId, tabs } });
        failures = 0;
      } catch (error) {
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
    this.hooks.changed();
  }
}
