// Whose logins the session's browser has, and which sites' cookies it takes, in
// words; and what is typed about both. Pure.

import { visible } from '../ui/visible.ts';

export interface Domain {
  pattern: string; // of a cookie's host, as in SQL's LIKE
  description?: string;
}

export interface Policy {
  policy: string; // 'sync-all', 'blocklist', 'allowlist', or '' where it can't be read
  domains: Domain[];
  error?: string; // why nothing is taken
}

export interface Push {
  at: number; // Unix ms
  hostname: string;
  sequence: number;
  written: number;
  dropped: number;
  refused: number;
}

export interface Pairing {
  id: string;
  user: string;
  name: string;
  mode: string; // 'paired' or 'secret'
  fingerprint: string;
  url?: string; // for whoever may pair
  versions: number[];
  pairedAt: number; // Unix ms
  last?: Push;
}

export interface Site {
  site: string;
  cookies: number;
  pairing: string;
}

export interface State {
  policy: Policy;
  pairings: Pairing[];
  sites: Site[];
}

// The versions of envelopes: ours alone, or today's programs' too.
export const strict = [1];
export const lenient = [1, 2];

export const takesLater = ({ versions }: Pairing): boolean => versions.includes(2);

const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export const whenText = (at: number): string => day.format(at);

export const plural = (n: number, one: string, many = `${one}s`): string => `${n.toLocaleString()} ${n === 1 ? one : many}`;

// labelOf is what a pairing is called.
export const labelOf = ({ name, last, id }: Pick<Pairing, 'name' | 'last' | 'id'>): string => visible(name || last?.hostname || id);

// cameOf says what came of the last push.
export function cameOf(last: Push | undefined): string {
  if (last === undefined) return '';
  const { written, dropped, refused } = last;
  const parts = [`${plural(written, 'cookie')} written`];
  if (dropped > 0) parts.push(`${dropped.toLocaleString()} kept back by the policy below`);
  if (refused > 0) parts.push(`${refused.toLocaleString()} refused`);
  return parts.join(' · ');
}

// sumOf says how much there is of a pairing.
export function sumOf(pairing: string, sites: readonly Site[]): string {
  const own = sites.filter((s) => s.pairing === pairing);
  if (own.length === 0) return 'No cookies of it are here.';
  return `${plural(own.reduce((n, s) => n + s.cookies, 0), 'cookie')} of ${plural(own.length, 'site')}`;
}

// found returns the sites that a person looks for.
export function found(sites: readonly Site[], text: string): Site[] {
  const wanted = text.trim().toLowerCase();
  return sites.filter(({ site }) => site.toLowerCase().includes(wanted));
}

// policyText says in a sentence what passes.
export function policyText({ policy, domains, error = '' }: Policy): string {
  if (error !== '') return visible(error);
  const n = plural(domains.length, 'pattern');
  switch (policy) {
    case 'sync-all':
      return 'Every site that somebody sends is taken.';
    case 'blocklist':
      return `Every site is taken but those of ${n}.`;
    case 'allowlist':
      return domains.length === 0 ? 'No site is taken.' : `Only the sites of ${n} are taken.`;
    default:
      return `The policy is ${visible(policy)}, which this page doesn’t know.`;
  }
}

// Modes are what one may choose: the policy of every site is a blocklist without
// patterns.
export type Mode = 'all' | 'blocklist' | 'allowlist';

// modeOf is the one that stands. Where nobody knows, nothing passes.
export const modeOf = ({ policy }: Policy): Mode => (policy === 'sync-all' ? 'all' : policy === 'blocklist' ? 'blocklist' : 'allowlist');

// write returns patterns as lines to edit, each with what is said of it.
export const write = (domains: readonly Domain[]): string => domains.map(({ pattern, description = '' }) => (description === '' ? pattern : `${pattern} # ${description}`)).join('\n');

// read is the way back. Lines without anything are nothing.
export function read(text: string): Domain[] {
  const domains: Domain[] = [];
  for (const line of text.split('\n')) {
    const [, pattern = '', description = ''] = /^(.*?)(?:\s+#\s*(.*))?$/.exec(line.trim()) ?? [];
    if (pattern !== '') domains.push(description === '' ? { pattern } : { pattern, description });
  }
  return domains;
}

const maxPatterns = 1_000;

// problemOf says why a policy can't be as typed, '' if it can.
export function problemOf(mode: Mode, domains: readonly Domain[]): string {
  if (mode === 'blocklist' && domains.length === 0) return 'Name what isn’t to be taken, or choose “Every site”.';
  if (mode !== 'all' && domains.length > maxPatterns) return `There are ${domains.length} patterns, and ${maxPatterns} are allowed.`;
  return '';
}

// siteOf returns the site that somebody means who types an address, '' if that is
// none. Others than ASCII's are punycode in a cookie's host, which URL makes them.
export function siteOf(text: string): string {
  const typed = text.trim().replace(/^\*?\./, '');
  try {
    const { hostname } = new URL(typed.includes('://') ? typed : `https://${typed}`);
    return /^[a-z0-9-]+(\.[a-z0-9-]+)*$/.test(hostname) ? hostname : '';
  } catch {
    return '';
  }
}

// withSite adds a site and what is below it.
export function withSite(domains: readonly Domain[], site: string): Domain[] {
  const more = [site, `%.${site}`].filter((pattern) => !domains.some((d) => d.pattern.toLowerCase() === pattern));
  return [...domains, ...more.map((pattern) => ({ pattern }))];
}

// A Begun pairing waits for the other program's key.
export interface Begun {
  pairing: string;
  sinkPublicKey: string; // base64
  sinkHostname: string;
  expiresAt: number; // Unix ms
}

export interface Finished {
  pairing: string;
  url: string;
  fingerprint: string;
  warning?: string;
}

// An Answer is what the other program says when it pairs.
export interface Answer {
  sourcePublicKey: string;
  sourceHostname: string;
  fingerprint: string;
}

// codeOf reads a code as people type it, '' if it is none: 8 or 12 letters.
export function codeOf(text: string): string {
  const letters = text.replace(/[\s-]/g, '').toUpperCase();
  return /^([A-Z2-7]{8}|[A-Z2-7]{12})$/.test(letters) ? (letters.match(/.{4}/g) ?? []).join('-') : '';
}

// askingText is the command that asks the other program, on the laptop where it
// waits. What it sends is on standard input: a code is nothing for a list of
// processes.
export function askingText({ sinkPublicKey, sinkHostname }: Begun, code: string): string {
  const body = JSON.stringify({ protocol_version: 1, code, sink_public_key: sinkPublicKey, sink_hostname: sinkHostname });
  return `curl -sS --json @- http://127.0.0.1:9998/pair <<'END'\n${ascii(body)}\nEND`;
}

// ascii spells out in JSON what a terminal might show as something else.
const ascii = (json: string): string => json.replace(/[^\x20-\x7e]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);

// answerOf reads what that command prints. It says what is wrong with anything else.
export function answerOf(text: string): Answer | string {
  let said: Record<string, unknown>;
  try {
    said = (JSON.parse(text.trim()) ?? {}) as Record<string, unknown>;
  } catch {
    return 'This isn’t what the command prints: paste all of it, from { to }.';
  }
  const { protocol_version: version, source_public_key: key, source_hostname: host, fingerprint } = said;
  if (typeof key !== 'string' || typeof host !== 'string' || typeof fingerprint !== 'string') {
    return typeof said.error === 'string' ? `The program refused: ${visible(said.error)}` : 'The answer lacks source_public_key, source_hostname or fingerprint: the program refused, or isn’t one that pairs.';
  }
  if (version !== 1) return 'The program pairs by another version than 1, which the sandbox doesn’t know.';
  if (!/^[A-Za-z0-9+/]{43}=$/.test(key)) return 'source_public_key isn’t a key: it has 44 characters of base64.';
  return { sourcePublicKey: key, sourceHostname: host, fingerprint: fingerprint.toLowerCase() };
}

// configText is what the other program's source.yaml needs.
export const configText = (url: string, host: string): string => `sink:\n  url: ${visible(url)}\npeer:\n  hostname: ${visible(host)}`;

// sourceCommands are those that pair a laptop by our own program. The control plane's
// address isn't this page's to say: a relay that lies could read what is pushed.
export const sourceCommands = (session: string): string => [
  `fairlead-source login --session ${session} https://CONTROL-PLANE`,
  'fairlead-source pair --site github.com',
  'fairlead-source push --watch',
].join('\n');
