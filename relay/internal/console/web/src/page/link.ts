// The link that the page was opened with, and whom it is for. A link of
// somebody else doesn't replace the person that this tab has without being
// agreed to: what one does, types and uploads afterwards would be theirs.

import { ApiError, whoAmI, type Origins, type Person } from '@fairlead/core';
import { agreed } from '../ui/ask.ts';
import { byId, setText } from '../ui/dom.ts';
import { become, person, tab } from '../ui/storage.ts';
import { visible } from '../ui/visible.ts';

export interface Link {
  token: string;
  session: string | null;
  pty: string | null;
  chat: string | null; // the conversation that is opened beside it
  size: string | null; // 'follow': this page is a panel, and never gives the terminal its size
}

// takeLink takes the token out of the address bar, where it would be copied,
// bookmarked and synchronised.
export function takeLink(): Link | undefined {
  const link = new URLSearchParams(location.hash.slice(1));
  const token = link.get('token');
  if (location.hash !== '') history.replaceState(null, '', location.pathname);
  return token === null || token === '' ? undefined : { token, session: link.get('session'), pty: link.get('pty'), chat: link.get('chat'), size: link.get('size') };
}

// validId reports whether what a link names can be an id of ours.
export const validId = (name: string | null): name is string => /^[A-Za-z0-9_.:-]{1,128}$/.test(name ?? '');

// What a link amounts to: taken, left for good, or left because the person
// wants to stay who they are.
export type Heeded = 'taken' | 'invalid' | 'declined';

// heed makes the tab that of the link's person, after asking if it is another
// one's. It fails with a passing ApiError when no relay answers.
export async function heed(link: Link, origins: Origins): Promise<Heeded> {
  const token = tab.get('token');
  if (token !== null && token !== link.token) {
    const present = person() ?? (await who(origins, token));
    const offered = await who(origins, link.token);
    if (present !== undefined && offered === undefined) return 'invalid';
    if (present !== undefined && offered !== undefined && present.id !== offered.id && !(await agrees(present, offered))) return 'declined';
  }
  become(link);
  return 'taken';
}

async function who(origins: Origins, token: string): Promise<Person | undefined> {
  try {
    return (await whoAmI(origins.current, token)).user;
  } catch (error) {
    if (error instanceof ApiError && !error.passing) return undefined;
    origins.failed(origins.current);
    throw error;
  }
}

// agrees asks in a dialog of its own: an answer to another question must not
// become the answer to this one.
function agrees(present: Person, offered: Person): Promise<boolean> {
  const dialog = byId('person', HTMLDialogElement);
  const [is, willBe] = [visible(present.name), visible(offered.name)];
  setText('person-title', `Go on as ${willBe}?`);
  setText('person-is', `${is} (${visible(present.id)})`);
  setText('person-link', `${willBe} (${visible(offered.id)})`);
  setText('person-no', `Stay ${is}`);
  setText('person-yes', `Go on as ${willBe}`);
  return agreed(dialog, byId('person-no', HTMLButtonElement));
}
