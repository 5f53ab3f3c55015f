// One session at whichever relay answers: its requests, under a grant that
// hasn't expired, at the relay in use or at the next one.

import { webPlatform, type Platform } from '../platform.ts';
import type { AgentStart, LogPart, PluginInfo, RecordingInfo, TerminalInfo } from '../protocol.ts';
import { obtainGrant } from './account.ts';
import { Changes } from './changes.ts';
import { Grants } from './grants.ts';
import { ApiError, call, longMs, quickMs, type Call } from './http.ts';
import type { Origins } from './origins.ts';

export interface SessionOptions {
  id: string;
  token: string; // of the person's link, or of their sign-in
  origins: Origins;
  platform?: Platform;
}

// A Ticket opens one terminal's socket, once.
export interface Ticket {
  url: string;
  ticket: string;
}

// A SessionCall is a Call without what the session adds.
export type SessionCall = Omit<Call, 'bearer'>;

export type AgentVerb = 'pause' | 'resume' | 'stop';

const terminal = (id: string): string => `/ptys/${encodeURIComponent(id)}`;

export class Session {
  readonly id: string;
  readonly origins: Origins;
  readonly platform: Platform;
  readonly #token: string;
  readonly #grants: Grants;
  readonly #changes: Changes;
  readonly #renewed = new Set<(grant: string) => void>();

  constructor({ id, token, origins, platform = webPlatform }: SessionOptions) {
    this.id = id;
    this.origins = origins;
    this.platform = platform;
    this.#token = token;
    this.#grants = new Grants(() => obtainGrant(origins.current, token, id, platform), (grant) => this.#renewed.forEach((tell) => tell(grant)), platform.clock);
    this.#changes = new Changes(platform);
  }

  // onRenewed has tell called with every grant but the first, until the function
  // that it returns is called. A socket that lives under a grant needs to know.
  onRenewed(tell: (grant: string) => void): () => void {
    this.#renewed.add(tell);
    return () => this.#renewed.delete(tell);
  }

  async terminals(): Promise<TerminalInfo[]> {
    return (await this.get<{ ptys: TerminalInfo[] | null }>('/ptys')).ptys ?? [];
  }

  // create returns the id of a new terminal. With a conversation that goes on there.
  async create(conversation?: string): Promise<string> {
    const [name, body] = conversation === undefined ? ['create', {}] : [`continue ${conversation}`, { conversation }];
    return ((await (await this.change(name, '/ptys', { method: 'POST', body })).json()) as { id: string }).id;
  }

  async close(id: string): Promise<void> {
    await this.change(`close ${id}`, terminal(id), { method: 'DELETE' });
  }

  // record begins or ends a recording.
  async record(id: string, on: boolean): Promise<void> {
    await this.change(`record ${id} ${on}`, `${terminal(id)}/recording`, { method: on ? 'POST' : 'DELETE' });
  }

  // share opens the terminal to the programs of another one, of the whole
  // session, or of none.
  async share(id: string, to: string): Promise<void> {
    await this.change(`share ${id} ${to}`, `${terminal(id)}/share`, { method: 'POST', body: { with: to } });
  }

  // startAgent puts a coding agent in front of a terminal.
  async startAgent(id: string, what: AgentStart): Promise<void> {
    await this.change(`start ${id} ${JSON.stringify(what)}`, `${terminal(id)}/agent`, { method: 'POST', body: what });
  }

  async steerAgent(id: string, verb: AgentVerb): Promise<void> {
    await this.change(`${verb} ${id}`, `${terminal(id)}/agent/${verb}`, { method: 'POST' });
  }

  // plugins are those that run, by name.
  async plugins(): Promise<PluginInfo[]> {
    return (await this.get<{ plugins: PluginInfo[] | null }>('/plugins')).plugins ?? [];
  }

  // preview opens what listens on a port of the sandbox, at an address that is good
  // once. With the id of a preview it renews that one, under the present grant.
  async preview(port: number, id?: string): Promise<{ id: string; url: string }> {
    const body = id === undefined ? { port } : { port, id };
    return (await (await this.request('/previews', { method: 'POST', body })).json()) as { id: string; url: string };
  }

  async recordings(): Promise<RecordingInfo[]> {
    return (await this.get<{ recordings: RecordingInfo[] | null }>('/recordings')).recordings ?? [];
  }

  // recording returns an asciicast v2 file.
  async recording(id: string): Promise<Blob> {
    return (await this.request(`/recordings/${encodeURIComponent(id)}`, { ms: longMs })).blob();
  }

  // log returns output as it was printed, and where it begins: later than asked
  // for where the log does.
  async log(id: string, { epoch, from, to }: LogPart): Promise<{ from: number; bytes: Uint8Array }> {
    const query = new URLSearchParams({ from: `${epoch}:${from}`, to: String(to) });
    const answer = await this.request(`${terminal(id)}/log?${query}`, { ms: longMs });
    const began = Number(answer.headers.get('Fairlead-Position')?.split(':')[1] ?? from);
    return { from: Number.isSafeInteger(began) ? began : from, bytes: new Uint8Array(await answer.arrayBuffer()) };
  }

  // ticket is what a connection begins with. A relay that has none now is left
  // for the next one.
  async ticket(id: string, freshGrant: boolean): Promise<Ticket> {
    let asked = this.origins.current;
    try {
      const answer = await this.ask((origin, grant) => {
        asked = origin;
        return call(`${origin}/pty-session`, { method: 'POST', bearer: grant, body: { session_id: this.id, pty_id: id }, ms: quickMs }, this.platform);
      }, freshGrant);
      const { ws_url: url, ticket } = (await answer.json()) as { ws_url: string; ticket: string };
      return { url, ticket };
    } catch (error) {
      if (error instanceof ApiError && error.status >= 500) this.origins.failed(asked);
      throw error;
    }
  }

  // signOut makes the token worthless, which it may be already.
  async signOut(): Promise<void> {
    try {
      await call(`${this.origins.current}/auth/logout`, { method: 'POST', bearer: this.#token }, this.platform);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
    }
  }

  // get reads the JSON at a path below the session.
  async get<T>(path: string): Promise<T> {
    return (await (await this.request(path)).json()) as T;
  }

  // request asks for a path below the session. freshGrant: the last grant was no
  // good.
  request(path: string, request: SessionCall = {}, freshGrant = false): Promise<Response> {
    return this.ask((origin, grant) => call(this.at(origin) + path, { ...request, bearer: grant }, this.platform), freshGrant);
  }

  // change requests what is named so once, whatever becomes of the answer: see
  // Changes.
  change(what: string, path: string, request: SessionCall): Promise<Response> {
    return this.#changes.make(what, (key) => this.request(path, { ...request, key }));
  }

  // at is where the session is found at a relay.
  at(origin: string): string {
    return `${origin}/sessions/${encodeURIComponent(this.id)}`;
  }

  // ask asks the relay in use, and at once the others when it doesn't answer. It
  // is for requests that the methods above don't know how to make.
  ask<T>(request: (origin: string, grant: string) => Promise<T>, freshGrant = false): Promise<T> {
    return this.#anywhere(async (origin) => request(origin, await this.#grants.current(freshGrant)));
  }

  // askControlPlane is for what relays forward: the person asks there, under their
  // token and not under the session's grant.
  askControlPlane<T>(request: (origin: string, token: string) => Promise<T>): Promise<T> {
    return this.#anywhere((origin) => request(origin, this.#token));
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
}
