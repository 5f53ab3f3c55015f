// A browser's cookies as an envelope has them (seed 004), and which stay here. Pure.

// A Cookie is one of chrome.cookies.
export type Cookie = chrome.cookies.Cookie;

// A Wire cookie is as Chromium's database has it, but for what chrome.cookies doesn't
// tell: when it was last used, its priority, and where it came from.
export interface Wire {
  host_key: string; // with a leading dot: of subdomains, too
  name: string;
  value: string;
  path: string;
  expires_utc: bigint; // microseconds since 1601; 0: none. A number ends at 2^53
  is_secure: 0 | 1;
  is_httponly: 0 | 1;
  last_access_utc: 0;
  has_expires: 0 | 1;
  is_persistent: 0 | 1;
  priority: 1; // medium
  samesite: -1 | 0 | 1 | 2;
  source_scheme: 0; // not known
  source_port: -1; // not said
}

const unixEpoch = 11_644_473_600_000_000n; // 1970, in microseconds since 1601
const mostBytes = 4_096; // of a name and its value
const utf8 = new TextEncoder();

// micros is a time of Chromium's. Seconds since 1970 as a number are exact to less
// than a microsecond, and rounding finds it.
export const micros = (seconds: number): bigint => BigInt(Math.round(seconds * 1e6)) + unixEpoch;

const sameSites: Record<string, Wire['samesite']> = { no_restriction: 0, lax: 1, strict: 2 };

// wireOf is what is sent of a cookie.
export function wireOf({ domain, hostOnly, name, value, path, secure, httpOnly, sameSite, session, expirationDate }: Cookie): Wire {
  const host = domain.replace(/^\./, '');
  const lasts = !session && expirationDate !== undefined;
  return {
    host_key: hostOnly ? host : `.${host}`,
    name, value, path,
    expires_utc: lasts ? micros(expirationDate) : 0n,
    is_secure: secure ? 1 : 0, is_httponly: httpOnly ? 1 : 0, last_access_utc: 0,
    has_expires: lasts ? 1 : 0, is_persistent: lasts ? 1 : 0,
    priority: 1, samesite: sameSites[sameSite] ?? -1, source_scheme: 0, source_port: -1,
  };
}

// What stays here, and why.
export interface LeftOut {
  partitioned: number; // of a site inside another one: an envelope has no place for them
  expired: number;
  tooLong: number; // Chromium takes none like it
}

// A Gathered set is all that there is of the sites, each cookie once.
export interface Gathered {
  cookies: Wire[];
  counts: Record<string, number>; // of each site
  leftOut: LeftOut;
}

// gather takes what Chrome has of each site. What ours() is true for, a host of a
// relay or the control plane, is never sent.
export function gather(sites: readonly { site: string; cookies: readonly Cookie[] }[], ours: (host: string) => boolean, now: number): Gathered {
  const all = new Map<string, Wire>();
  const counts: Record<string, number> = {};
  const leftOut: LeftOut = { partitioned: 0, expired: 0, tooLong: 0 };
  for (const { site, cookies } of sites) {
    counts[site] = 0;
    for (const cookie of cookies) {
      if (ours(cookie.domain.replace(/^\./, ''))) continue;
      const why = unfit(cookie, now);
      if (why !== undefined) {
        leftOut[why]++;
        continue;
      }
      const wire = wireOf(cookie);
      const id = idOf(wire);
      if (!all.has(id)) counts[site]++;
      all.set(id, wire);
    }
  }
  return { cookies: [...all.values()], counts, leftOut };
}

const idOf = ({ host_key, name, path }: Wire): string => JSON.stringify([host_key, name, path]);

function unfit({ partitionKey, session, expirationDate, name, value }: Cookie, now: number): keyof LeftOut | undefined {
  if (partitionKey !== undefined) return 'partitioned';
  if (!session && expirationDate !== undefined && expirationDate * 1000 <= now) return 'expired';
  return utf8.encode(name).length + utf8.encode(value).length > mostBytes ? 'tooLong' : undefined;
}

// A Bound count is of cookies that may live in this browser alone, by a key of its
// own (device bound session credentials).
export interface Bound {
  google: number;
  soon: number; // over within shortMs: a site that renews it all the time
}

const shortMs = 15 * 60_000;

export function bound(cookies: readonly Wire[], now: number): Bound {
  const count = { google: 0, soon: 0 };
  const until = micros((now + shortMs) / 1000);
  for (const { host_key, is_secure, has_expires, expires_utc } of cookies) {
    if (is_secure === 0) continue;
    if (`.${host_key}`.endsWith('.google.com')) count.google++;
    else if (has_expires === 1 && expires_utc < until) count.soon++;
  }
  return count;
}

// envelope is what is sealed: all that there is, so that what isn't in it goes.
export function envelope(hostname: string, sequence: number, cookies: readonly Wire[]): string {
  const list = cookies.map(({ expires_utc, ...rest }) => `${JSON.stringify(rest).slice(0, -1)},"expires_utc":${expires_utc}}`);
  return `{"protocol_version":1,"source_hostname":${JSON.stringify(hostname)},"sequence":${sequence},"cookies":[${list.join(',')}],"complete":true}`;
}

// setOf tells two sets apart, whatever the order in which Chrome tells them.
export const setOf = (cookies: readonly Wire[]): string => cookies.map((c) => `${idOf(c)}${envelope('', 0, [c])}`).sort().join('\n');
