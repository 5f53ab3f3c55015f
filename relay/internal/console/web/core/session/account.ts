// Who somebody is: what a link's token is good for, before there is a session.

import { webPlatform, type Platform } from '../platform.ts';
import type { Me } from '../protocol.ts';
import type { Grant } from './grants.ts';
import { call, quickMs } from './http.ts';

export async function whoAmI(origin: string, token: string, platform: Platform = webPlatform): Promise<Me> {
  return (await (await call(`${origin}/auth/me`, { bearer: token }, platform)).json()) as Me;
}

export interface Login {
  oidc: boolean;
  name?: string; // of the provider
}

// loginConfig says whether there is anything to sign in at.
export async function loginConfig(origin: string, platform: Platform = webPlatform): Promise<Login> {
  return (await (await call(`${origin}/auth/config`, { ms: quickMs }, platform)).json()) as Login;
}

// obtainGrant measures the grant's lifetime on the server's clock, so that a
// wrong clock here doesn't make it look expired or eternal.
export async function obtainGrant(origin: string, token: string, session: string, platform: Platform = webPlatform): Promise<Grant> {
  const answer = await call(`${origin}/grants`, { method: 'POST', bearer: token, body: { session_id: session }, ms: quickMs }, platform);
  const { grant, expires_at } = (await answer.json()) as { grant: string; expires_at: string };
  const now = Date.parse(answer.headers.get('Date') ?? '') || platform.clock.date();
  return { grant, lifetimeMs: Date.parse(expires_at) - now };
}
