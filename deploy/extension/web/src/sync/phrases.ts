// What the popup says. Pure.

import { plural } from '@fairlead/console/sync/model.ts';
import type { Last, State } from './told.ts';

type Tone = 'quiet' | 'good' | 'busy';

// summary is the one line about all of it.
export function summary({ pairing, sites, busy, failed, signedIn }: Pick<State, 'pairing' | 'sites' | 'busy' | 'failed' | 'signedIn'>): { text: string; tone: Tone } {
  if (busy !== '') return { text: { pairing: 'Pairing', sending: 'Sending', stopping: 'Stopping' }[busy], tone: 'good' };
  if (pairing === null) return { text: signedIn ? 'Not paired' : 'Signed out', tone: 'quiet' };
  if (failed) return { text: 'Not sent', tone: 'busy' };
  return sites.length === 0 ? { text: 'Nothing is sent', tone: 'quiet' } : { text: `${plural(sites.length, 'site')} kept signed in`, tone: 'good' };
}

// ago is how long ago something was.
export function ago(at: number, now: number): string {
  const minutes = Math.floor(Math.max(0, now - at) / 60_000);
  if (minutes < 1) return 'Just now';
  if (minutes < 60) return `${plural(minutes, 'minute')} ago`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${plural(hours, 'hour')} ago` : `${plural(Math.floor(hours / 24), 'day')} ago`;
}

// cameOf says what came of a push.
export function cameOf({ cookies, written, dropped, removed, refusals }: Last): string {
  const parts = [`${plural(cookies, 'cookie')} sent`, `${written.toLocaleString()} written`];
  if (dropped > 0) parts.push(`${dropped.toLocaleString()} kept out by the sandbox’s policy`);
  if (refusals > 0) parts.push(`${refusals.toLocaleString()} refused`);
  if (removed > 0) parts.push(`${removed.toLocaleString()} removed there`);
  return parts.join(' · ');
}

// notes are a line for each thing to know about a push: what was refused and why, what
// stayed here, and what will hardly live elsewhere.
export function notes({ refused, refusals, leftOut, bound }: Last): string[] {
  const lines = refused.map(({ host, name, reason }) => `Refused: ${name === '' ? 'a cookie' : name} of ${host}: ${reason}`);
  if (refusals > refused.length) lines.push(`Refused: ${refusals - refused.length} more`);
  for (const [n, why] of [
    [leftOut.partitioned, 'partitioned, of a site inside another one'],
    [leftOut.expired, 'expired'],
    [leftOut.tooLong, 'too long for a browser'],
  ] as const) {
    if (n > 0) lines.push(`Stays here: ${plural(n, 'cookie')}, ${why}`);
  }
  if (bound.google > 0) lines.push(`${plural(bound.google, 'cookie')} of google.com: Chrome may bind them to this computer, and then they don’t live long elsewhere.`);
  if (bound.soon > 0) lines.push(`${plural(bound.soon, 'cookie')} end within 15 minutes, and may be bound to this computer.`);
  return lines;
}

// again says when what failed is tried again.
export function again(next: number, now: number): string {
  if (next === 0) return '';
  const seconds = Math.ceil((next - now) / 1000);
  return seconds <= 1 ? 'It is tried again now.' : seconds < 90 ? `It is tried again in ${seconds} seconds.` : `It is tried again in ${Math.ceil(seconds / 60)} minutes.`;
}
