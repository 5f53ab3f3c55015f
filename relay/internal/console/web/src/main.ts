// Starts the console: takes the token from the link, asks who it belongs to,
// and shows a terminal.

import { ApiError, loginConfig, whoAmI, type Login } from './api.ts';
import { App } from './app.ts';
import { backoff } from './backoff.ts';
import { byId, setText } from './dom.ts';
import { Origins } from './origins.ts';
import { tab } from './storage.ts';
import { touch } from './theme.ts';
import './style/index.css';

declare global {
  interface Window {
    // What tests and scripts may use.
    fairlead?: { screenText(all?: boolean): string; webgl(): boolean };
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

// offerSignIn adds the way in to the card, where there is one besides links.
function offerSignIn(login: Promise<Login | undefined>): void {
  void login.then((found) => {
    if (found?.oidc !== true) return;
    const link = byId('sign-in', HTMLAnchorElement);
    link.href = '/auth/login?return_to=/';
    link.textContent = found.name ? `Sign in with ${found.name}` : 'Sign in';
    link.hidden = false;
  });
}

function status(text: string, tone: string): void {
  setText(byId('status-text', HTMLElement), text);
  byId('status', HTMLElement).dataset.tone = tone;
}

// relays are the origins that the page may connect to, as its own relay told.
function relays(): Origins {
  const listed = document.querySelector('meta[name=fairlead-origins]')?.getAttribute('content') ?? '';
  return new Origins(location.origin, listed.split(' ').filter((origin) => origin !== ''), tab.get('origin'), (origin) => tab.set('origin', origin));
}

// begin returns whether it is worth trying again.
async function begin(token: string, origins: Origins, login: Promise<Login | undefined>): Promise<boolean> {
  try {
    const me = await whoAmI(origins.current, token);
    const wanted = tab.get('session');
    const session = me.sessions.find((s) => s.id === wanted) ?? me.sessions[0];
    if (session === undefined) {
      status('No session', 'idle');
      card(`Hello ${me.user.name}`, 'There is no session that you can see. Ask for an invitation.');
      return false;
    }
    const app = new App(token, me, session, origins);
    window.fairlead = { screenText: (all) => app.text(all), webgl: () => app.webgl };
    void login.then((found) => found?.oidc === true && app.offerSignOut());
    byId('card', HTMLElement).hidden = true;
    await app.start(tab.get('pty'));
    return false;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (!error.passing) {
      status('Not connected', 'bad');
      card('This link is not valid any more', 'Ask for a new one, and open it in this tab.');
      offerSignIn(login);
      return false;
    }
    origins.failed(origins.current);
    status('Not connected', 'bad');
    card('The relay can’t be reached', 'Trying again by itself.');
    return true;
  }
}

// Less of the window than this is left where a phone's keyboard is open.
const keyboardPart = 0.75;

// aboveKeyboard keeps the page out from under a phone's keyboard, where the
// browser doesn't, and leaves as much of it as possible to the terminal.
function aboveKeyboard(): void {
  const seen = window.visualViewport;
  let tallest = window.innerHeight;
  const fit = () => {
    if (seen === null) return;
    tallest = Math.max(tallest, window.innerHeight);
    document.body.style.height = seen.scale === 1 ? `${seen.height}px` : '';
    document.body.classList.toggle('typing', touch.matches && seen.height < tallest * keyboardPart);
    window.scrollTo(0, 0);
  };
  seen?.addEventListener('resize', fit);
  screen.orientation?.addEventListener('change', () => (tallest = 0));
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
  const origins = relays();
  // Without an answer there are the links, as ever.
  const login = loginConfig(location.origin).catch(() => undefined);
  if (token === null) {
    status('Not connected', 'idle');
    card('Open the link you were given', 'It carries the key to a shared terminal. This tab has none yet.');
    offerSignIn(login);
    return;
  }
  for (let failures = 0; await begin(token, origins, login); failures++) {
    await new Promise((resolve) => setTimeout(resolve, backoff(failures + 1, Math.random())));
  }
}

void main();
