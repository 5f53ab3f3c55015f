// When a changed set of cookies is worth a push. A pure state machine: times are Unix
// ms, and come from outside.

export const settleMs = 500; // nothing must change so long: a sign-in sets a dozen cookies
export const patienceMs = 2_000; // a browser that never rests isn't waited for longer
export const apartMs = 2_000; // from one push to the next
const firstRetryMs = 2_000;
const lastRetryMs = 60_000;
const longestAfterMs = 3_600_000; // that an answer may ask for

// Changes are when the first and the last one came of those that no push has had.
type Changes = readonly [first: number, last: number] | null;

// A Pace outlives the worker, which Chrome ends after half a minute.
export interface Pace {
  sequence: number; // of the last push, stored before that goes out; it never goes back
  changed: Changes;
  taken: Changes; // what a push under way has
  tried: number; // when the last push began
  failures: number; // in a row
  notBefore: number; // what a failure asks for
  halted: 'no' | 'change' | 'asked'; // what it takes for another push
}

export const atRest: Pace = { sequence: 0, changed: null, taken: null, tried: 0, failures: 0, notBefore: 0, halted: 'no' };

// isPace says that what storage gave back is one.
export function isPace(value: unknown): value is Pace {
  const p = (value ?? {}) as Record<string, unknown>;
  const isChanges = (c: unknown): boolean => c === null || (Array.isArray(c) && c.length === 2 && c.every(Number.isSafeInteger));
  return [p.sequence, p.tried, p.failures, p.notBefore].every(Number.isSafeInteger) && isChanges(p.changed) && isChanges(p.taken) && ['no', 'change', 'asked'].includes(p.halted as string);
}

const both = (a: Changes, b: Changes): Changes => (a === null || b === null ? (a ?? b) : [Math.min(a[0], b[0]), Math.max(a[1], b[1])]);

// revive goes on where a worker has died: what it had taken may not have arrived.
export const revive = (p: Pace): Pace => ({ ...p, changed: both(p.taken, p.changed), taken: null });

// change notes that something has changed.
export const change = (p: Pace, now: number): Pace => ({ ...p, changed: both(p.changed, [now, now]), halted: p.halted === 'change' ? 'no' : p.halted });

// ask notes that the person wants it sent, whatever came of it before.
export const ask = (p: Pace, now: number): Pace => ({ ...p, changed: both(p.changed, [now - patienceMs, now - settleMs]), halted: 'no', notBefore: 0, failures: 0 });

// due is when the next push is; undefined: not before something happens. A clock that
// was turned back keeps nothing waiting.
export function due({ changed, taken, tried, notBefore, halted }: Pace, now: number): number | undefined {
  if (changed === null || taken !== null || halted !== 'no') return undefined;
  const settled = Math.min(changed[1] + settleMs, changed[0] + patienceMs);
  const at = Math.max(settled, tried + apartMs, notBefore);
  return at > now + longestAfterMs ? now : at;
}

// isLeft says that something is to be sent without anybody's doing.
export const isLeft = ({ changed, taken, halted }: Pace): boolean => taken !== null || (changed !== null && halted === 'no');

// take is a push that begins, before cookies are read: what changes from now on is for
// the next one.
export const take = (p: Pace, now: number): Pace => ({ ...p, changed: null, taken: p.changed ?? [now, now], tried: now });

// number gives a push that has read them a sequence greater than each before.
export const number = (p: Pace, now: number): Pace => ({ ...p, sequence: Math.max(p.sequence + 1, now) });

// done is a push that was taken, or wasn't needed.
export const done = (p: Pace): Pace => ({ ...p, taken: null, failures: 0, notBefore: 0 });

// A Failure is what came of a push that wasn't taken.
export interface Failure {
  again: 'later' | 'change' | 'asked'; // what it takes for another try
  afterMs: number; // that the answer asks to wait; 0: it doesn't
}

// fail keeps what was to be sent, and says when it is tried again: after twice as long
// each time, and not as long as others who wait. random is in [0, 1).
export function fail(p: Pace, { again, afterMs }: Failure, now: number, random: number): Pace {
  // What has changed meanwhile is the change that another try takes.
  const halted = again === 'later' || (again === 'change' && p.changed !== null) ? 'no' : again;
  const most = Math.min(firstRetryMs * 2 ** Math.min(p.failures, 10), lastRetryMs);
  const wait = Math.max(most / 2 + random * (most / 2), Math.min(afterMs, longestAfterMs));
  return { ...revive(p), halted, failures: p.failures + 1, notBefore: now + Math.ceil(wait) };
}
