// Tells the relay what has come of a command (seed 003 §5), again and again until
// it has heard, or nobody waits any more. The next worker goes on where one died.

import { skewMs } from './command.ts';
import type { Entry, Ledger, Outcome } from './ledger.ts';

const mostBytes = 128 << 10;

const utf8 = new TextEncoder();

// bodyOf is the callback for the nth time.
export function bodyOf({ commandId, traceId }: Pick<Entry, 'commandId' | 'traceId'>, outcome: Outcome, attempt: number): string {
  const { status, at, durationMs, ...what } = outcome;
  const body = (rest: object): string => JSON.stringify({ type: 'control.callback', commandId, traceId, at, status, ...rest, telemetry: { durationMs, attempt } });
  return body(what);
}

// fitting is an outcome that a callback may hold.
export function fitting(entry: Pick<Entry, 'commandId' | 'traceId'>, outcome: Outcome): Outcome {
  if (outcome.status !== 'ok' || utf8.encode(bodyOf(entry, outcome, 999)).length <= mostBytes) return outcome;
  return { status: 'error', at: outcome.at, durationMs: outcome.durationMs, error: { name: 'LimitError', message: `the answer is larger than ${mostBytes} bytes` } };
}

// heard says whether an answer ends it: another 4xx than 429 won't change its mind.
export const heard = (status: number): boolean => status === 204 || (status >= 400 && status < 500 && status !== 429);

// A relay that was begun anew hears of the command from the control plane again, and
// the page from a relay: then it is worth while to tell it again. Whoever sends it for
// fun has this many callbacks sent.
const unknown = 404;
const mostAttempts = 50;

// A relay that has just been silent may be begun anew, and hear of the command only
// after it answers again, where no page forwards it here once more: the page may be
// at another relay. So many times it is asked again before the outcome waits.
const mostForgiven = 3;

// pauseMs grows from one attempt to the next.
export const pauseMs = (attempt: number): number => Math.min(500 * 2 ** Math.min(attempt, 10), 30_000);

// over says that nobody waits for a command any more.
export const over = ({ deadline }: Entry, now: number): boolean => now > deadline + skewMs;

// Post sends a callback, and returns the status of the answer.
export type Post = (url: string, token: string, body: string) => Promise<number>;

export class Callbacks {
  readonly #under = new Set<string>();

  constructor(
    private readonly ledger: Ledger,
    private readonly post: Post,
    private readonly now: () => number,
    private readonly pause: (ms: number) => Promise<void>,
  ) {}

  // tell sends an outcome until it is heard. A worker that ends meanwhile leaves it
  // to the next one.
  async tell(entry: Entry): Promise<void> {
    if (this.#under.has(entry.commandId)) return;
    this.#under.add(entry.commandId);
    let forgiven = 0; // of the next answers that the command is unknown
    try {
      while (entry.reply !== undefined && entry.outcome !== undefined) {
        if (over(entry, this.now())) return await this.ledger.told(entry);
        const noted = this.ledger.sent(entry); // beside it: a worker that dies now counts one less
        const status = await this.post(entry.reply.url, entry.reply.callbackToken, bodyOf(entry, entry.outcome, entry.attempt)).catch(() => 0);
        await noted;
        if (status === 0 || status >= 500) forgiven = mostForgiven;
        if (status === unknown && (entry.again !== true || entry.attempt >= mostAttempts) && forgiven-- <= 0) return await this.ledger.unheard(entry);
        if (status !== unknown && heard(status)) return await this.ledger.told(entry);
        await this.pause(pauseMs(entry.attempt));
      }
    } finally {
      this.#under.delete(entry.commandId);
    }
  }

  // again tells what came of a command that was sent again, also if a relay has known
  // nothing of it.
  async again(id: string): Promise<void> {
    const entry = await this.ledger.again(id);
    if (entry !== undefined && entry.attempt < mostAttempts) await this.tell(entry);
  }

  // resume goes on with what workers before this one have left.
  async resume(): Promise<void> {
    for (const entry of await this.ledger.lost()) {
      await this.ledger.end(entry.commandId, { status: 'unknown', at: this.now(), durationMs: Math.max(0, this.now() - entry.accepted) });
    }
    for (const entry of await this.ledger.untold()) {
      if (entry.unheard !== true || over(entry, this.now())) void this.tell(entry);
    }
  }
}

// post is the one request that the extension makes on its own: to the address that
// was signed, without anything that the browser knows of the relay.
export async function post(url: string, token: string, body: string): Promise<number> {
  const response = await fetch(url, {
    method: 'POST', body, headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    redirect: 'error', credentials: 'omit', cache: 'no-store', referrerPolicy: 'no-referrer', signal: AbortSignal.timeout(10_000),
  });
  return response.status;
}
