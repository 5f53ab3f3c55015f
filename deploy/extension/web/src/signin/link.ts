// The link with which a person signs in: the console's, pasted, or what stands
// behind the # of the panel's own page. Pure.

export interface Link {
  origin: string; // the relay to begin with
  token: string;
  session: string | null; // the one that the link is about
}

// Why a text is no link that can be used.
export type Unusable = 'no link' | 'no token' | 'another relay';

// readLink reads a link. A token leaves for none but the relays that this
// extension was built for: a link to elsewhere is refused, not followed.
export function readLink(text: string, origins: readonly string[]): Link | Unusable {
  const trimmed = text.trim();
  const [first] = origins;
  if (trimmed === '' || first === undefined) return 'no link';
  let origin = first;
  let fragment = trimmed;
  if (!trimmed.startsWith('#')) {
    let url: URL;
    try {
      url = new URL(trimmed);
    } catch {
      return 'no link';
    }
    if (url.protocol !== 'http:' && url.protocol !== 'https:') return 'no link';
    if (!origins.includes(url.origin) || url.username !== '' || url.password !== '') return 'another relay';
    origin = url.origin;
    fragment = url.hash;
  }
  const members = new URLSearchParams(fragment.slice(1));
  const token = members.get('token') ?? '';
  // A header can't carry anything else, and no token of ours has it.
  if (!/^[\x21-\x7e]{1,512}$/.test(token)) return 'no token';
  const session = members.get('session');
  return { origin, token, session: session === '' ? null : session };
}

// isLink says that what storage gave back is a link which still leads to a relay
// of this build.
export function isLink(value: unknown, origins: readonly string[]): value is Link {
  if (typeof value !== 'object' || value === null) return false;
  const { origin, token, session } = value as Record<string, unknown>;
  return typeof origin === 'string' && origins.includes(origin) && typeof token === 'string' && (session === null || typeof session === 'string');
}

// unusable says so to the person.
export const unusable: Record<Unusable, string> = {
  'no link': 'That is not a link. Copy the whole address of your console.',
  'no token': 'That link has no token in it. Copy the one that you were given, with everything behind the #.',
  'another relay': 'That link leads to a relay that this extension was not built for.',
};
