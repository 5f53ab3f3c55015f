// Makes and ends a pairing. Keys, code and the word that both sides have the same go
// by way of the control plane, at its own address: a relay that carried them could put
// a key of its own in the sandbox's place.

import { ApiError, call, webPlatform, type Me, type Platform } from '@fairlead/core';
import { sinkOf } from './answer.ts';
import { base64Of, fromBase64, newCode, newHalf, pair } from './seal.ts';

// The sandbox may have cookies to take out of a browser first.
const commandMs = 90_000;

// A Pairing is what is known of one, beside its key.
export interface Pairing {
  id: string;
  session: string;
  label: string; // what the session is called
  url: string; // a secret: who has it may push rubbish there
  fingerprint: string;
  warning: string; // of the sandbox, for whoever has paired
  pairedAt: number; // Unix ms
}

// isPairing says that what storage gave back is one, at a relay of this build.
export function isPairing(value: unknown, origins: readonly string[]): value is Pairing {
  const p = (value ?? {}) as Record<string, unknown>;
  return isId(p.id) && typeof p.session === 'string' && typeof p.label === 'string' && sinkOf(p.url, origins) !== undefined && typeof p.fingerprint === 'string' && typeof p.warning === 'string' && typeof p.pairedAt === 'number';
}

const isId = (id: unknown): id is string => typeof id === 'string' && /^[A-Za-z0-9_-]{1,128}$/.test(id);

interface Outcome {
  status?: unknown;
  result?: Record<string, unknown>;
  error?: { name?: string; message?: string };
}

// A Gone error says that what is addressed isn't there.
export class Gone extends Error {}

export class ControlPlane {
  readonly #platform: Platform;

  // No redirect is followed: a code goes nowhere else.
  constructor(private readonly origin: string, private readonly token: string, fetch: Platform['fetch'] = webPlatform.fetch) {
    const strict: Pick<Platform, 'fetch'> = { fetch: (url, init) => fetch(url, { ...init, redirect: 'error' }) };
    this.#platform = Object.assign(Object.create(webPlatform) as Platform, strict);
  }

  async me(): Promise<Me> {
    return (await (await this.#call('/auth/me', {})).json()) as Me;
  }

  // run has a session's sandbox do something, once.
  async run(session: string, kind: string, members: object): Promise<Record<string, unknown>> {
    const body = { target: { sessionId: session }, op: { kind, ...members } };
    const answer = await this.#call('/commands', { method: 'POST', body, key: this.#platform.uuid(), ms: commandMs });
    const { status, result, error } = (await answer.json()) as Outcome;
    if (error !== undefined) {
      const message = error.message ?? 'The sandbox refused.';
      throw error.name === 'TargetError' ? new Gone(message) : new Error(message);
    }
    if (status !== 'ok') throw new Error('The sandbox hasn’t answered in time.');
    return result ?? {};
  }

  async #call(path: string, what: Parameters<typeof call>[1]): Promise<Response> {
    try {
      return await call(this.origin + path, { ...what, bearer: this.token }, this.#platform);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 0) throw new Error('The control plane does not answer.');
      if (error.status === 401) throw new Error('Your sign-in is over. Sign out, and paste your link again.');
      if (error.status === 404) throw new Gone(error.message);
      throw error;
    }
  }
}

export interface Made {
  pairing: Pairing;
  key: CryptoKey;
}

// pairWith makes a pairing with a session's sandbox. What it can't trust it ends.
export async function pairWith(control: ControlPlane, session: string, about: { name: string; hostname: string; label: string }, origins: readonly string[], now: number): Promise<Made> {
  const { pairing: id, sinkPublicKey } = await control.run(session, 'sync.pair', { step: 'begin', name: about.name });
  const theirs = fromBase64(sinkPublicKey);
  if (!isId(id) || theirs === undefined) throw new Error('The control plane answers something else than expected.');
  const own = await newHalf();
  const code = newCode();
  const { key, fingerprint } = await pair(own.privateKey, theirs, code);
  const finished = await control.run(session, 'sync.pair', {
    step: 'finish', pairing: id, sourcePublicKey: base64Of(own.publicKey), sourceHostname: about.hostname, fingerprint, code,
  });
  const url = sinkOf(finished.url, origins);
  if (finished.fingerprint === fingerprint && url !== undefined) {
    const warning = typeof finished.warning === 'string' ? finished.warning.slice(0, 500) : '';
    return { key, pairing: { id, session, label: about.label, url, fingerprint, warning, pairedAt: now } };
  }
  await unpair(control, session, id).catch(() => undefined);
  throw new Error(url === undefined ? 'The sandbox is at a relay that this extension was not built for.' : 'The sandbox shows another fingerprint than this browser: somebody stands between. Nothing was paired.');
}

// unpair ends a pairing: its address, and with it the cookies there. One that is gone
// already has ended.
export async function unpair(control: ControlPlane, session: string, id: string): Promise<void> {
  await control.run(session, 'sync.unpair', { pairing: id }).catch((error: unknown) => {
    if (!(error instanceof Gone)) throw error;
  });
}
