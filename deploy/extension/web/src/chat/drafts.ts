// What the person has written and not sent, for each tab: what is begun in one is
// not sent in another.

const mostDrafts = 64;

export class Drafts {
  readonly #of = new Map<number, string>();
  #tab: number | undefined; // whose draft stands in the field

  constructor(private readonly field: { value: string }) {}

  get writing(): boolean {
    return this.field.value.trim() !== '';
  }

  // turn shows the draft of a tab. What was written while no tab was known, or stood
  // there before, is the first one's.
  turn(tab: number): void {
    if (tab === this.#tab) return;
    if (this.#tab !== undefined && this.#tab !== 0) {
      this.#keep(this.#tab, this.field.value);
      this.field.value = this.#of.get(tab) ?? '';
    }
    this.#tab = tab;
  }

  #keep(tab: number, text: string): void {
    this.#of.delete(tab);
    if (text.trim() === '') return;
    this.#of.set(tab, text);
    const [first] = this.#of.keys();
    if (this.#of.size > mostDrafts && first !== undefined) this.#of.delete(first);
  }

  // take is the message, which is no draft any more.
  take(): string {
    const text = this.field.value.trim();
    this.field.value = '';
    return text;
  }
}
