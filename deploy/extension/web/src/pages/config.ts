// What this build was made for: the manifest, and config.json beside the scripts.

export interface Configuration {
  origins: string[]; // the relays
  jwks: string; // where the control plane publishes its keys; empty: nowhere
  keys: unknown; // a JWK set, for a build without an address
  tabs: 'shared' | 'all';
  except: string[]; // origins that no command touches, nor what is below them
}

// origins are known at once: who isn't one of them is never answered.
export const origins: readonly string[] = (chrome.runtime.getManifest().externally_connectable?.matches ?? []).map((pattern) => pattern.replace(/\/\*$/, ''));

export async function configuration(): Promise<Configuration> {
  const { jwks = '', keys = null, tabs, except = [] } = (await (await fetch(chrome.runtime.getURL('config.json'))).json()) as Partial<Configuration>;
  return { origins: [...origins], jwks, keys, tabs: tabs === 'all' ? 'all' : 'shared', except };
}

// ownOf are the origins that no command touches.
export function ownOf({ origins, jwks, except }: Configuration): string[] {
  const local = origins.some((origin) => /^http:\/\/(127\.|localhost)/.test(origin)) ? ['http://preview.localhost'] : [];
  return [...new Set([...origins, ...(jwks === '' ? [] : [new URL(jwks).origin]), ...except, ...local])];
}
