// What the file panel says: pure.

import { ApiError } from '@fairlead/core';
import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';

// problem says what went wrong, in words. The reason comes from the sandbox.
export function problem(error: unknown): string {
  if (error instanceof DOMException && error.name === 'NotReadableError') return 'The file on this device has changed, or can’t be read.';
  if (!(error instanceof ApiError)) return messageOf(error);
  const why = visible(error.message).replace(/[.!]?$/, '');
  switch (error.status) {
    case 0: return 'There is no connection.';
    case 401: return 'Access has ended.';
    case 403: return `Not allowed: ${why}.`;
    case 404: return 'It is not there any more.';
    case 409: return `Not possible: ${why}.`;
    case 412: return 'Somebody has changed it meanwhile. It was left as it is.';
    case 413: return `Too large: ${why}.`;
    case 429: return `Too much at once: ${why}.`;
    case 507: return 'The sandbox’s disk is full. What was there is as it was.';
    case 502:
    case 503:
    case 504: return 'The sandbox can’t be reached.';
    default: return error.status >= 500 ? `The sandbox has failed: ${why}.` : `${why}.`;
  }
}

const units: [string, number][] = [['y', 31_556_952], ['mo', 2_629_746], ['d', 86_400], ['h', 3_600], ['min', 60]];

// age says how long ago something was.
export function age(then: number, now: number): string {
  if (then === 0) return '';
  const seconds = (now - then) / 1000;
  for (const [unit, length] of units) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return seconds < -60 ? 'future' : 'now';
}

// counted is "1 file" or "3 files".
export const counted = (count: number, one: string): string => `${count.toLocaleString('en')} ${one}${count === 1 ? '' : 's'}`;

// some names the first of many.
export function some(names: string[], most = 5): string {
  const first = names.slice(0, most).map(visible);
  return [...first, ...(names.length > most ? [`and ${counted(names.length - most, 'other')}`] : [])].join('\n');
}
