// Stands in for Chrome's storage in the tests of the cores: what was written stays
// when its reader goes, and nothing is shared by reference.

import type { Area } from './area.ts';

export class Memory implements Area {
  kept = new Map<string, string>();
  full = false;
  writes = 0;

  get(keys: string | string[] | null): Promise<Record<string, unknown>> {
    const names = keys === null ? [...this.kept.keys()] : [keys].flat();
    return Promise.resolve(Object.fromEntries(names.filter((name) => this.kept.has(name)).map((name) => [name, JSON.parse(this.kept.get(name) ?? '')])));
  }

  set(items: Record<string, unknown>): Promise<void> {
    this.writes++;
    if (this.full) return Promise.reject(new Error('QUOTA_BYTES'));
    for (const [name, value] of Object.entries(items)) this.kept.set(name, JSON.stringify(value));
    return Promise.resolve();
  }

  remove(keys: string | string[]): Promise<void> {
    for (const name of [keys].flat()) this.kept.delete(name);
    return Promise.resolve();
  }
}
