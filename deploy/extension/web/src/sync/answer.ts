// Posts an envelope, and reads what a sandbox says of it.

import { reasonOf } from '@fairlead/core';
import { visible } from '@fairlead/console/ui/visible.ts';
import { boundedText } from '../pages/bounded.ts';
import { overhead } from './seal.ts';
import type { Failure } from './when.ts';

export const mostBody = 32 << 20; // as the relay has it by default
const mostAnswer = 64 << 10;
const mostTold = 300;
const mostRefused = 20;
const answeringMs = 120_000; // a browser sets a whole envelope in seconds

// A Push is what came of one.
export interface Push {
  written: number;
  dropped: number; // by the sandbox's policy
  removed: number; // that weren't among those sent
  refused: { host: string; name: string; reason: string }[]; // some of them
  refusals: number; // all
}

// A NotTaken error says why a push wasn't taken, in words for people.
export class NotTaken extends Error implements Failure {
  constructor(message: string, readonly again: Failure['again'], readonly afterMs = 0) {
    super(message);
  }
}

// sinkOf reads the address of a pairing: at one of the relays, and nowhere else.
export function sinkOf(url: unknown, origins: readonly string[]): string | undefined {
  if (typeof url !== 'string' || url.length > 1_024) return undefined;
  const origin = origins.find((o) => url.startsWith(`${o}/`));
  return origin !== undefined && /^\/sync\/[A-Za-z0-9_-]{1,128}\/[a-z2-7]{26}$/.test(url.slice(origin.length)) ? url : undefined;
}

// tooLarge says that there is too much for one body.
export const tooLarge = (bytes: number): boolean => bytes + overhead > mostBody;

export const tooMuch = (): NotTaken => new NotTaken(`The cookies have more than ${mostBody >> 20} MiB. Remove a site.`, 'change');

// post sends a body. It follows no redirect: the address is a secret.
export async function post(url: string, body: Uint8Array<ArrayBuffer>, fetch: typeof globalThis.fetch): Promise<Push> {
  let answer: Response;
  try {
    answer = await fetch(url, {
      method: 'POST', body, headers: { 'Content-Type': 'application/octet-stream' },
      redirect: 'error', credentials: 'omit', cache: 'no-store', referrerPolicy: 'no-referrer', signal: AbortSignal.timeout(answeringMs),
    });
  } catch {
    throw new NotTaken('The relay can’t be reached.', 'later'); // what fetch says may have the address
  }
  const text = await boundedText(answer, mostAnswer).catch(() => '');
  if (answer.status !== 200) throw refusal(answer.status, text, answer.headers.get('Retry-After'));
  return read(text);
}

// refusal is an answer that isn't a 200.
export function refusal(status: number, text: string, retryAfter: string | null): NotTaken {
  const seconds = /^\d{1,4}$/.test(retryAfter ?? '') ? Number(retryAfter) : 0;
  if (status >= 500 || status === 429) {
    const words = status === 503 ? 'The sandbox isn’t connected.' : status === 429 ? 'The relay wants a pause.' : `The sandbox could not take it: ${said(status, text)}`;
    return new NotTaken(words, 'later', seconds * 1000);
  }
  switch (status) {
    case 401: return new NotTaken('The sandbox can’t open what was sent: the keys differ. Stop, and pair again.', 'asked');
    case 403: return new NotTaken('This relay lets no pushes of this extension in: it must be listed in its --extension-ids.', 'change');
    case 404: return new NotTaken('The sandbox knows no such pairing: it was ended there. Stop, and pair again.', 'asked');
    case 409: return new NotTaken('The sandbox has had a later push of this browser: is this computer’s clock behind, or its profile an old copy?', 'change');
    case 413: return new NotTaken('The cookies are too many for the relay. Remove a site.', 'change');
    default: return new NotTaken(`The sandbox refused the push: ${said(status, text)}`, 'change');
  }
}

const said = (status: number, text: string): string => visible(reasonOf(status, text)).slice(0, mostTold);

// read reads the body of a 200. What it lacks is none.
export function read(text: string): Push {
  let answer: Record<string, unknown>;
  try {
    answer = (JSON.parse(text) ?? {}) as Record<string, unknown>;
  } catch {
    throw new NotTaken('The sandbox took the push, and its answer can’t be read.', 'change');
  }
  const count = (n: unknown): number => (typeof n === 'number' && Number.isSafeInteger(n) && n > 0 ? n : 0);
  const short = (t: unknown): string => visible(typeof t === 'string' ? t : '').slice(0, mostTold);
  const refused = (Array.isArray(answer.refused) ? answer.refused : []) as (Record<string, unknown> | null)[];
  return {
    written: count(answer.written), dropped: count(answer.dropped), removed: count(answer.removed), refusals: refused.length,
    refused: refused.slice(0, mostRefused).map((r) => ({ host: short(r?.host_key), name: short(r?.name), reason: short(r?.reason) })),
  };
}
