// From a page's message to the outcome that is told: checks, the note on the disk,
// the answer, the run, the callback.

import { type Here, type Order, check, isText, readRequest } from './checks.ts';
import { type Callbacks, fitting } from './callback.ts';
import { Lanes } from './lanes.ts';
import type { Ledger, Outcome } from './ledger.ts';
import { type Fault, Refusal, tooMuch } from './refusal.ts';

export interface Answer {
  ok: boolean;
  requestId?: string;
  commandId?: string;
  traceId?: string;
  data?: unknown;
  error?: Fault;
}

// answerTo echoes what a page needs to tell its answers apart.
export function answerTo(message: Record<string, unknown>, what: { data: unknown } | { error: Fault }): Answer {
  const echo: Answer = { ok: 'data' in what };
  for (const name of ['requestId', 'commandId', 'traceId'] as const) {
    const value = message[name];
    if (isText(value)) echo[name] = value;
  }
  return { ...echo, ...what };
}

// refusalOf is what is said of any failure: ours in words that tell nothing.
export const refusalOf = (e: unknown): Fault => (e instanceof Refusal ? e.fault : tooMuch('the command can’t be taken at the moment').fault);

export interface Parts {
  here: () => Here; // as it is now
  ledger: Ledger;
  callbacks: Callbacks;
  arm: () => Promise<void>; // so that a worker comes that finishes it
  run: (order: Order) => Promise<Outcome>;
  ran: (order: Order, outcome: Outcome) => void;
}

export class Intake {
  readonly #arrivals = new Lanes(512, 64);
  readonly #runs = new Lanes(512, 64);

  constructor(private readonly parts: Parts) {}

  // invoke answers a message, and has the command run where that answer is yes for
  // the first time. For one tab that happens in the order in which messages came.
  async invoke(message: Record<string, unknown>): Promise<Answer> {
    let leave = (): void => undefined;
    try {
      const request = readRequest(message);
      const place = this.#arrivals.enter(request.target.tabId as number);
      if (place === undefined) throw tooMuch('too many commands wait for that tab');
      leave = place.leave;
      const [order] = await Promise.all([check(request, this.parts.here()).catch((e: unknown) => e as Error), place.turn]);
      if (order instanceof Error) throw order;
      await this.#take(order);
      return answerTo(message, { data: { accepted: true } });
    } catch (e) {
      return answerTo(message, { error: refusalOf(e) });
    } finally {
      leave();
    }
  }

  async #take(order: Order): Promise<void> {
    const place = this.#runs.enter(order.target.tabId);
    if (place === undefined) throw tooMuch('too many commands wait for that tab');
    let running = false;
    try {
      await this.parts.arm();
      const taken = await this.parts.ledger.take(order);
      if (taken === 'full') throw tooMuch('the command can’t be noted, and so doesn’t run');
      if (taken === 'seen') return void this.parts.callbacks.again(order.commandId).catch(() => undefined);
      running = true;
      // Nobody waits for it but the callback: the answer is that it was accepted.
      void this.#finish(order, place);
    } finally {
      if (!running) place.leave();
    }
  }

  async #finish(order: Order, place: { turn: Promise<void>; leave: () => void }): Promise<void> {
    const { ledger, callbacks, run, ran } = this.parts;
    try {
      await place.turn;
      const outcome = await run(order);
      place.leave();
      ran(order, outcome);
      const entry = await ledger.end(order.commandId, fitting(order, outcome));
      if (entry !== undefined) await callbacks.tell(entry);
    } finally {
      place.leave();
    }
  }
}
