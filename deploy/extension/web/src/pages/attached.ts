// The tabs that a command is attached to now, and the badge that says so. The badge
// stays for a moment: a command is over before anybody could see it.

const lingerMs = 4_000;

export class Attached {
  readonly #on = new Set<number>();
  readonly #ends = new Map<number, (reason: string) => void>();
  #lately = new Set<number>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #shown = '';

  constructor(private readonly changed: () => void) {}

  get tabs(): number[] {
    return [...new Set([...this.#on, ...this.#lately])];
  }

  has(tab: number): boolean {
    return this.#on.has(tab);
  }

  set(tab: number, on: boolean): void {
    if (on) this.#on.add(tab);
    else {
      this.#on.delete(tab);
      this.#ends.delete(tab);
    }
    this.#lately.add(tab);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#lately = new Set();
      this.#show();
      this.changed();
    }, lingerMs);
    this.#show();
    this.changed();
  }

  // ended resolves with a reason when a tab is detached by somebody else.
  ended(tab: number): Promise<string> {
    return new Promise((resolve) => this.#ends.set(tab, resolve));
  }

  end(tab: number, reason: string): void {
    this.#ends.get(tab)?.(reason);
  }

  endAll(reason: string): void {
    for (const end of this.#ends.values()) end(reason);
  }

  #stopped = false;

  stop(stopped: boolean): void {
    this.#stopped = stopped;
    this.#show();
  }

  #show(): void {
    const count = this.tabs.length;
    const text = this.#stopped ? 'off' : count === 0 ? '' : String(count);
    if (text === this.#shown) return;
    this.#shown = text;
    void chrome.action.setBadgeText({ text });
    void chrome.action.setBadgeBackgroundColor({ color: this.#stopped ? '#6b7280' : '#b3261e' });
    void chrome.action.setTitle({ title: this.#stopped ? 'fairlead: no command touches your tabs' : count === 0 ? 'fairlead' : `fairlead: a session drives ${count === 1 ? 'one of your tabs' : `${count} of your tabs`}` });
  }
}
