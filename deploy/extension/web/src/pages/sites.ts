// Where tabs may be that a command touches: sites, but for our own. Pure.

// Allowed says that a tab may be at an address.
export type Allowed = (address: string | undefined) => boolean;

// siteOf is the address, parsed, if it is one on http or https.
export function siteOf(address: string | undefined): URL | undefined {
  try {
    const url = new URL(address ?? '');
    return (url.protocol === 'http:' || url.protocol === 'https:') && url.hostname !== '' ? url : undefined;
  } catch {
    return undefined;
  }
}

// sitesBut allows all sites but those of ours, and what is below their names: the
// console, whose tab holds what the person signs in with, the control plane, the
// previews. On this machine a port tells programs apart, and the name doesn't.
export function sitesBut(ours: readonly string[]): Allowed {
  const own = ours.map(siteOf).filter((url) => url !== undefined);
  return (address) => {
    const url = siteOf(address);
    return url !== undefined && !own.some((o) => isAt(url, o) || isBelow(url, o));
  };
}

function isAt(url: URL, own: URL): boolean {
  return host(url) === host(own) && (url.port === own.port || url.protocol !== own.protocol);
}

const isBelow = (url: URL, own: URL): boolean => /[a-z]/.test(host(own)) && host(own) !== thisMachine && host(url).endsWith(`.${host(own)}`);

const thisMachine = 'localhost';

// host is the name of a host. A dot at its end changes nothing but the text.
function host(url: URL): string {
  const name = url.hostname.replace(/\.$/, '');
  return /^(127\.[\d.]+|\[::1\]|\[::ffff:7f[\da-f:]+\]|0\.0\.0\.0|\[::\])$/.test(name) ? thisMachine : name;
}
