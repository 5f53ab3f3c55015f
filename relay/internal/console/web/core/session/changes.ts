// Changes that are made once each, also when their answers are lost. A change whose
// outcome isn't known is requested again under the same Idempotency-Key, and under
// no other until the outcome is known.

import { backoff } from '../backoff.ts';
import { pause, type Platform } from '../platform.ts';
import { ApiError } from './http.ts';

const attempts = 3; // where no relay has had the request
const patience = 8; // where one may have carried it out: some seconds
const rememberMs = 120_000; // then the same request means another change

// Unsettled means that nobody could say so far whether the change was made. To make
// it again asks for its outcome.
export class Unsettled extends Error {
  constructor(cause: ApiError) {
    super(`It isn’t known whether this was done: ${cause.message}`);
    this.name = 'Unsettled';
  }
}

export class Changes {
  readonly #keys = new Map<string, { key: string; until: number }>(); // of changes that are unsettled

  constructor(private readonly platform: Pick<Platform, 'clock' | 'random' | 'uuid'>) {}

  // make makes the change that what names, or asks how it went when it is
  // unsettled. An empty what is for a change that may as well be made twice.
  async make<T>(what: string, request: (key: string) => Promise<T>): Promise<T> {
    const known = this.#unsettled(what);
    const key = known ?? this.platform.uuid();
    let maybe = known !== undefined; // somebody may have made it
    for (let failures = 1; ; failures++) {
      try {
        const answer = await request(key);
        this.#keys.delete(what);
        return answer;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        maybe ||= error.unknown;
        if (!error.passing) this.#keys.delete(what); // it was refused, and isn't done
        else if (failures >= (maybe ? patience : attempts)) this.#leave(what, key, maybe);
        else {
          await pause(this.platform.clock, backoff(failures, this.platform.random()));
          continue;
        }
        throw error.passing && maybe ? new Unsettled(error) : error;
      }
    }
  }

  #unsettled(what: string): string | undefined {
    for (const [other, { until }] of this.#keys) if (this.platform.clock.now() >= until) this.#keys.delete(other);
    return this.#keys.get(what)?.key;
  }

  #leave(what: string, key: string, maybe: boolean): void {
    if (maybe && what !== '') this.#keys.set(what, { key, until: this.platform.clock.now() + rememberMs });
  }
}
