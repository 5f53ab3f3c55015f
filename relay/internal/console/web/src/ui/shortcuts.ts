// Keys of the page rather than of the program in the terminal.

import type { SizeStep } from './typesize.ts';

export type Shortcut = 'find' | 'copy' | SizeStep;

interface Keys {
  key: string;
  code: string;
  ctrlKey: boolean;
  shiftKey: boolean;
  altKey: boolean;
  metaKey: boolean;
}

// shortcut names what a key does here, or nothing: then it is the program's.
// Ctrl+C stays the program's even while text is selected.
export function shortcut({ key, code, ctrlKey, shiftKey, altKey, metaKey }: Keys): Shortcut | undefined {
  if (altKey || ctrlKey === metaKey) return undefined; // one of the two
  if (code === 'KeyF' && shiftKey) return 'find';
  if (code === 'KeyC' && shiftKey === ctrlKey) return 'copy'; // Ctrl+Shift+C, Cmd+C
  if (code === 'Insert' && ctrlKey && !shiftKey) return 'copy';
  if (key === '+' || (key === '=' && !shiftKey)) return 'bigger';
  if (key === '-') return 'smaller';
  return key === '0' && !shiftKey ? 'normal' : undefined;
}
