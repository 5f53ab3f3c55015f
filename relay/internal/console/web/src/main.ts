// Starts the console: takes the token from the link, asks who it belongs to,
// and shows a terminal.

import { ApiError, whoAmI } from './api.ts';
import { App } from './app.ts';
import { backoff } from './backoff.ts';
import { byId, setText } from './dom.ts';
import { tab } from './storage.ts';
import './style/index.css';

declare global {
  interface Window {
    // What tests and scripts may use.
    fairlead?: { screenText(all?: boolean): string };
  }
}

// takeLink moves the token out of the address bar, where it would be copied,
// bookmarked and synchronised, into this tab's storage.
function takeLink(): void {
  const link = new URLSearchParams(location.hash.slice(1));
  const token = link.get('token');
  if (token !== null) {
    tab.set('token', token);
    for (const name of ['session', 'pty']) tab.set(name, link.get(name));
  }
  if (location.hash !== '') history.replaceState(null, '', location.pathname);
}

function card(title: string, text: string): void {
  setText(byId('card-title', HTMLElement), title);
  setText(byId('card-text', HTMLElement), text);
  byId('card', HTMLElement).hidden = false;
}

function status(text: string, tone: string): void {
  setText(byId('status-text', HTMLElement), text);
  byId('status', HTMLElement).dataset.tone = tone;
}

// begin returns whether it is worth trying again.
async function begin(token: string): Promise<boolean> {
  try {
    const me = await whoAmI(token);
    const wanted = tab.get('session');
    const session = me.sessions.find((s) => s.id === wanted) ?? me.sessions[0];
    if (session === undefined) {
      status('No session', 'idle');
      card(`Hello ${me.user.name}`, 'There is no session that you can see. Ask for an invitation.');
      return false;
    }
    const app = new App(token, me, session);
    window.fairlead = { screenText: (all) => app.text(all) };
    byId('card', HTMLElement).hidden = true;
    await app.start(tab.get('pty'));
    return false;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (!error.passing) {
      status('Not connected', 'bad');
      card('This link is not valid any more', 'Ask for a new one, and open it in this tab.');
      return false;
    }
    status('Not connected', 'bad');
    card('The relay can’t be reached', 'Trying again by itself.');
    return true;
  }
}

// aboveKeyboard keeps the page out from under a phone's keyboard, where the
// browser doesn't.
function aboveKeyboard(): void {
  const seen = window.visualViewport;
  seen?.addEventListener('resize', () => {
    document.body.style.height = seen.scale === 1 ? `${seen.height}px` : '';
    window.scrollTo(0, 0);
  });
}

async function main(): Promise<void> {
  takeLink();
  aboveKeyboard();
  window.addEventListener('hashchange', () => {
    if (!location.hash.includes('token=')) return;
    takeLink();
    location.reload();
  });
  const token = tab.get('token');
  if (token === null) {
    status('Not connected', 'idle');
    card('Open the link you were given', 'It carries the key to a shared terminal. This tab has none yet.');
    return;
  }
  for (let failures = 0; await begin(token); failures++) {
    await new Promise((resolve) => setTimeout(resolve, backoff(failures + 1, Math.random())));
  }
}

void main();
