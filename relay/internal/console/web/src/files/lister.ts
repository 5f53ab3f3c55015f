// When to list folders that change: one request at a time for each, and the
// fewer the longer one takes.

export interface ListerClock {
  now(): number;
  setTimeout(run: () => void, ms: number): unknown;
}

const realClock: ListerClock = { now: () => performance.now(), setTimeout: (run, ms) => setTimeout(run, ms) };

// A folder rests between two lists, and for this much longer than a list took.
export const restMs = 250;
const restTimes = 4;

export class Lister {
  readonly #busy = new Map<string, { listing: boolean; again: boolean }>();

  constructor(
    private readonly list: (folder: string) => Promise<void>,
    private readonly clock: ListerClock = realClock,
  ) {}

  // want lists folder now, or as soon as that makes sense.
  want(folder: string): void {
    const busy = this.#busy.get(folder);
    if (busy !== undefined) busy.again = true;
    else void this.#run(folder);
  }

  // need is want for a folder that was never listed: a list under way will do.
  need(folder: string): void {
    if (this.#busy.get(folder)?.listing !== true) this.want(folder);
  }

  async #run(folder: string): Promise<void> {
    const state = { listing: true, again: false };
    this.#busy.set(folder, state);
    const began = this.clock.now();
    await this.list(folder).catch(() => {}); // list says so itself
    state.listing = false;
    const took = this.clock.now() - began;
    this.clock.setTimeout(() => {
      this.#busy.delete(folder);
      if (state.again) this.want(folder);
    }, restMs + took * restTimes);
  }
}
