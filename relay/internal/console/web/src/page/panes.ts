// The terminals that are connected, and the one of them that is shown.

import { nobody } from '@fairlead/core';
import type { Pane } from '../terminal/pane.ts';
import { nameOf } from '../terminal/words.ts';

// Terminals that stay connected while another is shown.
const mostOpen = 8;

export class Panes {
  readonly #open = new Map<string, Pane>(); // the least recently shown first
  #shown: string | null = null;

  constructor(private readonly make: (id: string) => Pane) {}

  get all(): Pane[] {
    return [...this.#open.values()];
  }

  get shown(): Pane | undefined {
    return this.#shown === null ? undefined : this.#open.get(this.#shown);
  }

  get(id: string): Pane | undefined {
    return this.#open.get(id);
  }

  // show shows a terminal in the place of another, and connects it first where it
  // isn't yet.
  show(id: string): Pane {
    this.shown?.show(false);
    const pane = this.#open.get(id) ?? this.#connect(id);
    this.#open.delete(id); // to the end
    this.#open.set(id, pane);
    this.#shown = id;
    pane.show(true);
    return pane;
  }

  // hide shows none of them.
  hide(): void {
    this.shown?.show(false);
    this.#shown = null;
  }

  #connect(id: string): Pane {
    if (this.#open.size >= mostOpen) this.#evict();
    const pane = this.make(id);
    pane.terminal.start();
    return pane;
  }

  // evict disconnects the terminal that wasn't shown for longest, rather one
  // without control than one with.
  #evict(): void {
    const pane = this.all.find((p) => !p.mine) ?? this.all[0];
    if (pane !== undefined) this.drop(pane.id);
  }

  // drop disconnects a terminal, and returns whether it was shown.
  drop(id: string): boolean {
    this.#open.get(id)?.close();
    this.#open.delete(id);
    const shown = this.#shown === id;
    if (shown) this.#shown = null;
    return shown;
  }

  // nameOf is what somebody is called in any terminal that is open.
  nameOf(user: string): string {
    const known = this.all.find(({ control }) => control.names.has(user));
    return nameOf(known?.control ?? nobody('', ''), user);
  }
}
