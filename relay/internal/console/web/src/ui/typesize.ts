// The size of the terminal's type, as the person chose it for this browser.

import { browser } from './storage.ts';

export const leastPx = 10;
export const mostPx = 28;

export type SizeStep = 'smaller' | 'bigger' | 'normal';

// resized is the size after a step from size; null: as the page chooses.
export function resized(size: number | null, normal: number, step: SizeStep): number | null {
  if (step === 'normal') return null;
  const next = (size ?? normal) + (step === 'bigger' ? 1 : -1);
  return Math.min(Math.max(next, leastPx), mostPx);
}

// chosen is the person's choice in CSS pixels, or null.
export function chosen(): number | null {
  const size = Number(browser.get('type-size'));
  return size >= leastPx && size <= mostPx ? size : null;
}

export function choose(size: number | null): void {
  browser.set('type-size', size === null ? null : String(size));
}
