// What may be told of the person's tab, once she has switched that on. Pure.

const mostChars = 2_048;

// Parameters whose values are somebody's secret more often than not.
const secret = /^(password|passwd|pwd|token|secret|key|auth|bearer|api_?key|access_token|id_token|code|signature|sig)$/i;

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
  for (const name of new Set(url.searchParams.keys())) if (secret.test(name)) url.searchParams.set(name, '***');
  return url.href.length > mostChars ? `${url.origin}${url.pathname}`.slice(0, mostChars) : url.href;
}

// title is what a tab is called, without what could be mistaken for more.
export const title = (text: string | undefined): string => (text ?? '').replace(/\p{C}/gu, ' ').slice(0, 256);
