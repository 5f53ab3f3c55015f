// Of several tabs that show one terminal to its controller, one may answer the
// program's questions, or the program would read each answer several times.

// A Sole holds the right to answer as one user for one terminal, both in id, by a lock that the browser
// shares among its tabs. The tab that had the focus last takes it.
export class Sole {
  #held = false;
  #closed = false;
  #queued: AbortController | undefined;
  readonly #name: string;

  constructor(id: string) {
    this.#name = `fairlead.answers.${id}`;
    if (navigator.locks === undefined) {
      this.#held = true; // no way to know of other tabs
      return;
    }
    this.#ask(document.hasFocus());
    window.addEventListener('focus', this.#focused);
  }

  get held(): boolean {
    return this.#held;
  }

  close(): void {
    this.#closed = true;
    this.#held = false;
    this.#queued?.abort();
    this.#release?.();
    window.removeEventListener('focus', this.#focused);
  }

  #release: (() => void) | undefined;

  #focused = () => {
    if (!this.#held) this.#ask(true);
  };

  #ask(steal: boolean): void {
    if (this.#closed) return;
    this.#queued?.abort();
    this.#queued = new AbortController();
    const options: LockOptions = steal ? { steal } : { signal: this.#queued.signal };
    const aborted = this.#queued.signal;
    navigator.locks
      .request(this.#name, options, () => {
        this.#held = true;
        return new Promise<void>((resolve) => (this.#release = resolve));
      })
      .catch(() => {
        // Stolen by another tab (then wait in line), or given up by us.
        if (aborted.aborted) return;
        this.#held = false;
        this.#ask(false);
      });
  }
}
