// What this tab, or this browser, remembers. A browser that forbids storage
// still shows the terminal: then nothing outlives the page.

import type { Person } from '@fairlead/core';


function keep(area: () => Storage) {
  const memory = new Map<string, string>();
  return {
    get(name: string): string | null {
      try {
        return memory.get(name) ?? area().getItem(`fairlead.${name}`);
      } catch {
        return memory.get(name) ?? null;
      }
    },
    set(name: string, value: string | null): void {
      memory.delete(name);
      try {
        area().removeItem(`fairlead.${name}`);
        if (value !== null) area().setItem(`fairlead.${name}`, value);
      } catch {
        if (value !== null) memory.set(name, value); // or there is no room
      }
    },
    // names are those that begin with prefix.
    names(prefix: string): string[] {
      try {
        return [...memory.keys(), ...Object.keys(area()).map((key) => key.replace(/^fairlead\./, ''))].filter((name) => name.startsWith(prefix));
      } catch {
        return [...memory.keys()].filter((name) => name.startsWith(prefix));
      }
    },
  };
}

export const tab = keep(() => sessionStorage); // token, person, session, pty, size, origin, chat, the conversation that a link wants opened, what is unsent

// person is who the tab's token was last found to be for.
export function person(): Person | undefined {
  const known = tab.get('person');
  return known === null ? undefined : (JSON.parse(known) as Person);
}

export function remember(known: Person): void {
  forgetUnsent(known.id);
  tab.set('person', JSON.stringify({ id: known.id, name: known.name }));
}

// unsent is where a person's messages are kept that a session doesn't have yet.
export const unsent = (person: string, session: string): string => `unsent.${person}.${session}`;

// forgetUnsent drops the messages of all but one person.
function forgetUnsent(but: string): void {
  for (const name of tab.names('unsent.')) if (!name.startsWith(unsent(but, ''))) tab.set(name, null);
}

// become makes the tab that of a link.
export function become(link: { token: string; session: string | null; pty: string | null; chat: string | null; size: string | null }): void {
  for (const name of ['token', 'session', 'pty', 'size'] as const) tab.set(name, link[name]);
  tab.set('converse', link.chat);
  tab.set('person', null);
}

// otherSession shows another session, and its first terminal.
export function otherSession(id: string): void {
  tab.set('session', id);
  tab.set('pty', null);
  location.reload();
}

// forgetLink leaves the page as it is without a link.
export function forgetLink(): void {
  for (const name of ['token', 'person', 'session', 'pty', 'size']) tab.set(name, null);
  forgetUnsent('');
  location.reload();
}

export const browser = keep(() => localStorage); // preferences
