// Integrations by REST: the control plane's routes, which every relay forwards.

import { call, type Session } from '@fairlead/core';
import type { Attachment, Member, Mine, Policy } from './integrations.ts';

export class IntegrationsAPI {
  constructor(private readonly session: Session, private readonly dashboard: string) {}

  // members are those of the dashboard that the session belongs to.
  async members(): Promise<Member[]> {
    return (await this.#get<{ members: Member[] | null }>(this.#here('/members'))).members ?? [];
  }

  async attachments(): Promise<Attachment[]> {
    return (await this.#get<{ attachments: Attachment[] | null }>(this.#here(`/integrations?${new URLSearchParams({ session_id: this.session.id })}`))).attachments ?? [];
  }

  // mine are the person's own accounts, and the services there are.
  async mine(): Promise<Mine> {
    const { providers, accounts } = await this.#get<{ providers: Mine['providers'] | null; accounts: Mine['accounts'] | null }>('/integrations');
    return { providers: providers ?? [], accounts: accounts ?? [] };
  }

  // connect returns where the person agrees to connect an account.
  async connect(provider: string): Promise<string> {
    const path = `/integrations/${encodeURIComponent(provider)}/connect`;
    // Only this browser can end what it begins: the answer leaves a cookie, at
    // the page's own origin, to which the service leads back.
    const answer = await this.session.askControlPlane((_, token) => call(location.origin + path, { method: 'POST', bearer: token, body: {}, cookies: true }));
    return ((await answer.json()) as { url: string }).url;
  }

  async disconnect(account: string): Promise<void> {
    await this.#send('DELETE', `/integrations/accounts/${encodeURIComponent(account)}`);
  }

  // attach gives the programs of a terminal an account, or other rules for it.
  async attach(pty: string, provider: string, account: string, policy: Policy): Promise<void> {
    await this.#send('PUT', this.#at(pty, provider), { session_id: this.session.id, account_id: account, policy });
  }

  async detach(pty: string, provider: string): Promise<void> {
    await this.#send('DELETE', `${this.#at(pty, provider)}?${new URLSearchParams({ session_id: this.session.id })}`);
  }

  #here(path: string): string {
    return `/dashboards/${encodeURIComponent(this.dashboard)}${path}`;
  }

  #at(pty: string, provider: string): string {
    return this.#here(`/terminals/${encodeURIComponent(pty)}/integrations/${encodeURIComponent(provider)}`);
  }

  #get<T>(path: string): Promise<T> {
    return this.session.askControlPlane(async (origin, token) => (await (await call(origin + path, { bearer: token })).json()) as T);
  }

  #send(method: string, path: string, body?: unknown): Promise<Response> {
    return this.session.askControlPlane((origin, token) => call(origin + path, { method, bearer: token, ...(body === undefined ? {} : { body }) }));
  }
}
