// Changes that are made once each, whatever becomes of their answers: a change
// whose outcome isn't known is asked for by the same key, and by no other one
// until it is known.

import { backoff } from '../backoff.ts';
import { pause, type Platform } from '../platform.ts';
import { ApiError } from './http.ts';

const attempts = 3; // of what nobody has had
const patience = 8; // of what somebody may have done: some seconds
const rememberMs = 120_000; // by then the person means another change, and sees how things are

// Unsettled: a change may have been made, and nobody could say so far. To make
// it again asks what became of it.
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
