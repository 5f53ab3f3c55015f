// A session at whichever relay answers: every request of the page, with a
// grant that hasn't expired, at the relay in use or at the next one.

import {
  ApiError, closeTerminal, createTerminal, fetchLog, fetchRecording, listRecordings, listTerminals, obtainGrant, obtainTicket, record, signOut, startAgent, steerAgent,
  type AgentStart, type Ticket,
} from './api.ts';
import { Changes } from './changes.ts';
import type { Part } from './connection.ts';
import { Grants } from './grants.ts';
import { originOf, type Origins } from './origins.ts';
import type { RecordingInfo, TerminalInfo } from './protocol.ts';

export type Request<T> = (origin: string, grant: string) => Promise<T>;
export type Change<T> = (origin: string, grant: string, key: string) => Promise<T>; // key: Idempotency-Key

export class Relay {
  readonly #grants: Grants;
  readonly #changes = new Changes();

  // renewed is called with every grant but the first.
  constructor(
    private readonly token: string,
    readonly session: string,
    private readonly origins: Origins,
    renewed: (grant: string) => void,
  ) {
    this.#grants = new Grants(() => obtainGrant(origins.current, token, session), renewed);
  }

  // signOut makes the page's token worthless, which it may be already.
  async signOut(): Promise<void> {
    try {
      await signOut(this.origins.current, this.token);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
    }
  }

  // elsewhere: the relay of a socket at url can't help.
  elsewhere(url: string): void {
    this.origins.failed(originOf(url));
  }

  moved(origin: string): void {
    this.origins.moved(origin, Date.now());
  }

  // silent: the relay of a socket at url stands still.
  silent(url: string): void {
    this.origins.silent(originOf(url), Date.now());
  }

  // others says that there is another relay to go to.
  get others(): boolean {
    return this.origins.others;
  }

  list(): Promise<TerminalInfo[]> {
    return this.ask((origin, grant) => listTerminals(origin, grant, this.session));
  }

  // ticket is what a connection begins with: a relay that has none now is left
  // for the next one.
  async ticket(id: string, freshGrant: boolean): Promise<Ticket> {
    let asked = this.origins.current;
    try {
      return await this.ask((origin, grant) => {
        asked = origin;
        return obtainTicket(origin, grant, this.session, id);
      }, freshGrant);
    } catch (error) {
      if (error instanceof ApiError && error.status >= 500) this.origins.failed(asked);
      throw error;
    }
  }

  create(): Promise<string> {
    return this.change('create', (origin, grant, key) => createTerminal(origin, grant, this.session, key));
  }

  close(id: string): Promise<void> {
    return this.change(`close ${id}`, (origin, grant, key) => closeTerminal(origin, grant, this.session, id, key));
  }

  record(id: string, on: boolean): Promise<void> {
    return this.change(`record ${id} ${on}`, (origin, grant, key) => record(origin, grant, this.session, id, on, key));
  }

  startAgent(id: string, what: AgentStart): Promise<void> {
    return this.change(`start ${id} ${JSON.stringify(what)}`, (origin, grant, key) => startAgent(origin, grant, this.session, id, what, key));
  }

  steerAgent(id: string, verb: 'pause' | 'resume' | 'stop'): Promise<void> {
    return this.change(`${verb} ${id}`, (origin, grant, key) => steerAgent(origin, grant, this.session, id, verb, key));
  }

  recordings(): Promise<RecordingInfo[]> {
    return this.ask((origin, grant) => listRecordings(origin, grant, this.session));
  }

  recording(id: string): Promise<Blob> {
    return this.ask((origin, grant) => fetchRecording(origin, grant, this.session, id));
  }

  log(id: string, part: Part): Promise<{ from: number; bytes: Uint8Array }> {
    return this.ask((origin, grant) => fetchLog(origin, grant, this.session, id, part));
  }

  // ask asks the relay in use, and at once the others when it doesn't answer. It,
  // change and askControlPlane are for what other modules ask for as well.
  ask<T>(request: Request<T>, freshGrant = false): Promise<T> {
    return this.#anywhere(async (origin) => request(origin, await this.#grants.current(freshGrant)));
  }

  // askControlPlane is for what relays forward: the person asks there, under the
  // link's token and not under the session's grant.
  askControlPlane<T>(request: (origin: string, token: string) => Promise<T>): Promise<T> {
    return this.#anywhere((origin) => request(origin, this.token));
  }

  async #anywhere<T>(request: (origin: string) => Promise<T>): Promise<T> {
    for (let left = this.origins.count; ; left--) {
      const origin = this.origins.current;
      try {
        return await request(origin);
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 0) throw error;
        this.origins.failed(origin);
        if (left <= 1) throw error;
      }
    }
  }

  // change makes what is named so, once: see Changes.
  change<T>(what: string, request: Change<T>): Promise<T> {
    return this.#changes.make(what, (key) => this.ask((origin, grant) => request(origin, grant, key)));
  }
}
