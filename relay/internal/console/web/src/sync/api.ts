// Requests about signed-in sites: read at the relay, changed by commands that the
// control plane signs.

import { call, type Session } from '@fairlead/core';
import type { Answer, Begun, Domain, Finished, Mode, State } from './model.ts';

// The sandbox may have cookies to take out of a browser first.
const commandMs = 90_000;

interface Outcome {
  status: string;
  result?: unknown;
  error?: { message?: string };
}

export class SyncAPI {
  constructor(private readonly session: Session, private readonly dashboard: string) {}

  state(): Promise<State> {
    return this.session.get<State>('/sync');
  }

  // names are those of the dashboard's members, by id.
  async names(): Promise<Map<string, string>> {
    if (this.dashboard === '') return new Map();
    const path = `/dashboards/${encodeURIComponent(this.dashboard)}/members`;
    const { members } = await this.session.askControlPlane(async (origin, token) => (await (await call(origin + path, { bearer: token })).json()) as { members: { user: string; name: string }[] | null });
    return new Map((members ?? []).map(({ user, name }) => [user, name]));
  }

  begin(name: string): Promise<Begun> {
    return this.#run<Begun>('sync.pair', { step: 'begin', ...(name === '' ? {} : { name }) });
  }

  finish(pairing: string, answer: Answer, code: string): Promise<Finished> {
    return this.#run<Finished>('sync.pair', { step: 'finish', pairing, ...answer, code });
  }

  async accept(pairing: string, versions: number[]): Promise<void> {
    await this.#run('sync.accept', { pairing, versions });
  }

  async unpair(pairing: string): Promise<void> {
    await this.#run('sync.unpair', { pairing });
  }

  async setPolicy(mode: Mode, domains: Domain[]): Promise<void> {
    await this.#run('sync.policy', mode === 'all' ? { policy: 'blocklist', domains: [] } : { policy: mode, domains });
  }

  // run has the sandbox do something once, whichever relay passes it on.
  async #run<T>(kind: string, members: object): Promise<T> {
    const body = { target: { sessionId: this.session.id }, op: { kind, ...members } };
    const key = this.session.platform.uuid();
    const answer = await this.session.askControlPlane((origin, token) => call(`${origin}/commands`, { method: 'POST', bearer: token, key, body, ms: commandMs }));
    const { status, result, error } = (await answer.json()) as Outcome;
    if (error !== undefined) throw new Error(error.message ?? 'The sandbox refused.');
    if (status !== 'ok') throw new Error('It isn’t known whether this was done: the sandbox hasn’t answered. The list shows how it is.');
    return (result ?? {}) as T;
  }
}
