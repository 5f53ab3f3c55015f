// Order: what concerns one tab happens one after the other, as it came. Pure.

export class Lanes {
  readonly #last = new Map<number, Promise<void>>();
  readonly #waiting = new Map<number, number>();
  #all = 0;

  constructor(
    private readonly most: number, // in all lanes
    private readonly mostOfOne: number,
  ) {}

  // enter takes a place in a lane, or none when it is full.
  enter(lane: number): { turn: Promise<void>; leave: () => void } | undefined {
    const here = this.#waiting.get(lane) ?? 0;
    if (this.#all >= this.most || here >= this.mostOfOne) return undefined;
    this.#all++;
    this.#waiting.set(lane, here + 1);
    const turn = this.#last.get(lane) ?? Promise.resolve();
    let over = (): void => undefined;
    const mine = new Promise<void>((resolve) => (over = resolve));
    const last = turn.then(() => mine);
    this.#last.set(lane, last);
    let left = false;
    const leave = (): void => {
      if (left) return;
      left = true;
      this.#all--;
      const others = (this.#waiting.get(lane) ?? 1) - 1;
      if (others > 0) this.#waiting.set(lane, others);
      else this.#waiting.delete(lane);
      if (others === 0) this.#last.delete(lane);
      over();
    };
    return { turn, leave };
  }

  get size(): number {
    return this.#all;
  }
}
