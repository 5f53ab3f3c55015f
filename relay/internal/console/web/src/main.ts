// Starts the console: takes the token from the link, asks who it belongs to,
// and shows a terminal.

import { ApiError, backoff, loginConfig, Origins, whoAmI, type Login, type Person } from '@fairlead/core';
import { App } from './page/app.ts';
import { card, status } from './page/card.ts';
import { heed, takeLink, type Heeded, type Link } from './page/link.ts';
import { hint } from './ui/ask.ts';
import { byId, setText } from './ui/dom.ts';
import { remember, tab } from './ui/storage.ts';
import { touch } from './ui/theme.ts';
import { visible } from './ui/visible.ts';
import './page/index.css';

declare global {
  interface Window {
    // What tests and scripts may use.
    fairlead?: { screenText(all?: boolean): string; webgl(): boolean };
  }
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

// relays are the origins that the page may connect to, from its own relay.
function relays(): Origins {
  const listed = document.querySelector('meta[name=fairlead-origins]')?.getAttribute('content') ?? '';
  return new Origins({
    first: location.origin,
    all: listed.split(' ').filter((origin) => origin !== ''),
    remembered: tab.get('origin'),
    remember: (origin) => tab.set('origin', origin),
  });
}

// show says who one is, for as long as the page is open.
function show({ id, name }: Person): void {
  const me = byId('me');
  setText('me-name', visible(name));
  me.title = `You are ${visible(name)} (${visible(id)})`;
  me.hidden = false;
}

// app is the page once it is known whose it is.
let app: App | undefined;

// say tells why a link has changed nothing.
function say(heeded: Heeded | undefined): void {
  if (heeded === 'invalid' && app !== undefined) hint('The link that was opened is not valid any more');
}

function unreachable(): void {
  status('Not connected', 'bad');
  card({ title: 'The relay can’t be reached', text: 'Trying again by itself.' });
}

// settle heeds a link, for as long as it takes until a relay answers.
async function settle(link: Link, origins: Origins): Promise<Heeded> {
  for (let failures = 1; ; failures++) {
    try {
      return await heed(link, origins);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (app === undefined) unreachable();
      await new Promise((resolve) => setTimeout(resolve, backoff(failures, Math.random())));
    }
  }
}

// heedLater heeds links that are opened in this tab while the page is there. One
// that comes while another is being asked about is dropped.
function heedLater(origins: Origins): void {
  let asking = false;
  window.addEventListener('hashchange', async () => {
    const link = takeLink();
    if (link === undefined || asking) return;
    asking = true;
    const heeded = await settle(link, origins);
    if (heeded === 'taken') location.reload();
    else say(heeded);
    asking = false;
  });
}

// begin returns whether it is worth trying again.
async function begin(token: string, origins: Origins, login: Promise<Login | undefined>, heeded: Heeded | undefined): Promise<boolean> {
  try {
    const me = await whoAmI(origins.current, token);
    remember(me.user);
    show(me.user);
    const wanted = tab.get('session');
    const session = me.sessions.find((s) => s.id === wanted) ?? me.sessions[0];
    if (session === undefined) {
      status('No session', 'idle');
      card({ title: `Hello ${me.user.name}`, text: 'There is no session that you can see. Ask for an invitation.' });
      return false;
    }
    const shown = new App(token, me, session, origins);
    app = shown;
    window.fairlead = { screenText: (all) => shown.text(all), webgl: () => shown.webgl };
    void login.then((found) => found?.oidc === true && shown.offerSignOut());
    card(null);
    say(heeded);
    await shown.start(tab.get('pty'));
    return false;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (!error.passing) {
      status('Not connected', 'bad');
      card({ title: 'This link is not valid any more', text: 'Ask for a new one, and open it in this tab.' });
      offerSignIn(login);
      return false;
    }
    origins.failed(origins.current);
    unreachable();
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
  const link = takeLink();
  aboveKeyboard();
  const origins = relays();
  heedLater(origins);
  const heeded = link === undefined ? undefined : await settle(link, origins);
  const token = tab.get('token');
  // Without an answer there are the links, as ever.
  const login = loginConfig(location.origin).catch(() => undefined);
  if (token === null) {
    status('Not connected', 'idle');
    card({ title: 'Open the link you were given', text: 'It carries the key to a shared terminal. This tab has none yet.' });
    offerSignIn(login);
    return;
  }
  for (let failures = 0; await begin(token, origins, login, heeded); failures++) {
    await new Promise((resolve) => setTimeout(resolve, backoff(failures + 1, Math.random())));
  }
}

void main();
