// Sequences that xterm.js repeats as often as they say: two billion times keep
// the page from ever answering again. No program means that.

import type { IParser } from '@xterm/xterm';

const repeated = ['S', 'T', 'L', 'M', 'P', '@', 'I', 'Z', 'b'];
export const mostRepeats = 65_535;

// excessive says that a sequence with these parameters is to be ignored.
export function excessive(params: (number | number[])[]): boolean {
  const [count] = params;
  return typeof count === 'number' && count > mostRepeats;
}

// bound makes xterm.js ignore what would stall it.
export function bound(parser: IParser): void {
  for (const final of repeated) parser.registerCsiHandler({ final }, excessive);
}
