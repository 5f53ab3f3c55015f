// Which sites a person may name, and what Chrome is asked for them. Pure.

import { sitesBut, siteOf } from '../pages/sites.ts';

// isAddress says that a host is an IP address or this machine's name, which has nothing below it.
const isAddress = (host: string): boolean => /^[\d.]+$/.test(host) || host.startsWith('[') || host === 'localhost';

// What stands before a country, and hosts many people's sites: below them each name
// is somebody else's. The list is short, and only says what is offered first; the
// person sees the name, and Chrome asks her for it.
const common = new Set(['ac', 'co', 'com', 'edu', 'gov', 'go', 'gob', 'gouv', 'ne', 'net', 'or', 'org']);
const shared = new Set(['appspot.com', 'azurewebsites.net', 'blogspot.com', 'cloudfront.net', 'fly.dev', 'github.io', 'gitlab.io', 'herokuapp.com', 'netlify.app', 'onrender.com', 'pages.dev', 'vercel.app', 'web.app', 'workers.dev']);

// isPublic says that what is below a name belongs to many.
function isPublic(name: string): boolean {
  const labels = name.split('.');
  const [second, top = ''] = labels.slice(-2);
  return labels.length < 2 || shared.has(name) || (labels.length === 2 && top.length === 2 && common.has(second ?? ''));
}

// isSite says that a name may be on the list: as Chromium writes hosts.
export const isSite = (name: unknown): name is string =>
  typeof name === 'string' && name.length <= 253 && (isAddress(name) ? siteOf(`http://${name}/`)?.hostname === name : /^([a-z0-9_-]{1,63}\.)+[a-z0-9-]{1,63}$/.test(name) && !isPublic(name));

// choices are the sites that the page at an address may be of, the likeliest first:
// what stands in front, and each name above it. None: the page is ours, or no site.
export function choices(address: string | undefined, ours: readonly string[]): string[] {
  const url = siteOf(address);
  if (url === undefined || !sitesBut(ours)(address)) return [];
  const host = url.hostname.replace(/\.$/, '');
  if (oursBy(ours)(host)) return []; // at another port, which cookies don't tell apart
  if (isAddress(host)) return isSite(host) ? [host] : [];
  const labels = host.split('.');
  return labels.map((_, i) => labels.slice(i).join('.')).filter((name) => !isAddress(name) && isSite(name)).reverse();
}

// patterns are what Chrome is asked for: this site alone, and what is below it. A
// cookie that isn't Secure is one of http.
export const patterns = (site: string): string[] => [isAddress(site) ? `*://${site}/*` : `*://*.${site}/*`];

// covers says that a cookie's host is one of a site.
export function covers(site: string, domain: string): boolean {
  const host = domain.replace(/^\./, '');
  return host === site || (!isAddress(site) && host.endsWith(`.${site}`));
}

// oursBy says which hosts' cookies are never sent: the relays' and the control plane's,
// and what is below their names.
export function oursBy(origins: readonly string[]): (host: string) => boolean {
  const hosts = origins.map((origin) => new URL(origin).hostname);
  return (host) => hosts.some((own) => covers(own, host));
}
