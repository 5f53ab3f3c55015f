// What may be told of the person's tab, once she has switched that on. Pure.

import { whole, within } from './secrets.ts';

const mostChars = 2_048;

// secret reports whether a parameter's value is somebody's secret. Its name may be
// escaped, also in ways that decodeURIComponent doesn't take.
function secret(name: string): boolean {
  const plain = name
    .replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))
    .replaceAll('+', ' ')
    .trim()
    .toLowerCase();
  return whole.includes(plain) || within.some((word) => plain.includes(word));
}

// masked hides the values of a query's parameters that are secret. A secret goes on
// up to the next &: programs differ in what else ends it.
const masked = (query: string): string =>
  query
    .split('&')
    .map((part) => {
      for (const { 0: all, 1: name, index } of part.matchAll(/(?<=^|[;?])([^=;?]*)=/g)) {
        const value = index + all.length;
        if (secret(name ?? '') && value < part.length) return `${part.slice(0, value)}***`;
      }
      return part;
    })
    .join('&');

// shareable is the address as it may leave, or undefined for a page that nobody
// is told of: the browser's own, and our relays', whose links are credentials.
// What stands behind the # stays here for the same reason.
export function shareable(address: string | undefined, own: readonly string[]): string | undefined {
  let url: URL;
  try {
    url = new URL(address ?? '');
  } catch {
    return undefined;
  }
  if ((url.protocol !== 'http:' && url.protocol !== 'https:') || own.includes(url.origin)) return undefined;
  url.username = '';
  url.password = '';
  url.hash = '';
  url.search = masked(url.search);
  return url.href.length > mostChars ? `${url.origin}${url.pathname}`.slice(0, mostChars) : url.href;
}

// title is what a tab is called, without what could be mistaken for more.
export const title = (text: string | undefined): string => (text ?? '').replace(/\p{C}/gu, ' ').slice(0, 256);
