// How much a page may say: a bucket that fills by and by. Pure.

export class Bucket {
  #left: number;
  #at: number | undefined;

  constructor(
    private readonly most: number,
    private readonly perSecond: number,
  ) {
    this.#left = most;
  }

  // take reports whether one more is allowed. A clock that goes back adds nothing.
  take(now: number): boolean {
    this.#left = Math.min(this.most, this.#left + (Math.max(0, now - (this.#at ?? now)) / 1000) * this.perSecond);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}
