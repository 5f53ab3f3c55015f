// The side panel's page: whose it is, and then its two tabs.

import './panel.css';
import { ApiError, backoff, Origins, pause, webPlatform, whoAmI, type Me } from '@fairlead/core';
import { byId, setHidden, setText } from '@fairlead/console/ui/dom.ts';
import { visible } from '@fairlead/console/ui/visible.ts';
import { isLink, readLink, unusable, type Link } from '../signin/link.ts';
import { App, type Left } from './app.ts';
import { configuration } from './config.ts';
import { Wanted } from './wanted.ts';

const { storage } = chrome;
const stored = 'link';
let attempt = 0; // a later sign-in ends an earlier one's attempts
let app: App | undefined;
let left: Left | undefined; // of an App whose token is over
let last = ''; // the person who was here
const text = byId('chat-text', HTMLTextAreaElement);
const wanted = new Wanted((what) => converse(what));

const { origins } = await configuration();

// fromAddress takes the link out of the page's own address, where it would stay
// in the history.
function fromAddress(): Link | undefined {
  const { hash } = location;
  if (hash === '') return undefined;
  history.replaceState(null, '', location.pathname);
  const link = readLink(hash, origins);
  return typeof link === 'string' ? undefined : link;
}

function ask(problem = ''): void {
  attempt++;
  app?.stop();
  app = undefined;
  document.body.dataset.view = 'sign-in';
  byId('menu').hidePopover();
  setText('sign-in-problem', problem);
  byId('sign-in-link', HTMLInputElement).value = '';
  byId('sign-in-link').focus();
}

// forget signs out here. The token stays good where it came from: it is the
// person's, not the panel's. The form is there at once: what is pasted into it a
// moment later must not be wiped.
async function forget(problem = ''): Promise<void> {
  ask(problem);
  await storage.session.remove(stored);
}

// expire signs out for the token is over. What the person has written waits for
// her, and so does the sandbox, for a minute.
function expire(why: string): void {
  left = app?.leave();
  app = undefined;
  void forget(why);
}

// use goes on as the link's person. The token is kept in memory, until the
// browser ends or the person signs out.
async function use(link: Link): Promise<void> {
  const mine = ++attempt;
  document.body.dataset.view = 'waiting';
  setText('waiting-text', 'Connecting');
  await storage.session.set({ [stored]: link });
  const relays = new Origins({ first: link.origin, all: origins });
  for (let failures = 0; mine === attempt; failures++) {
    try {
      const me = await whoAmI(relays.current, link.token);
      if (mine === attempt) await enter(link, me, relays);
      return;
    } catch (error) {
      if (mine !== attempt) return;
      if (!(error instanceof ApiError)) throw error;
      if (!error.passing) return forget(error.status === 401 ? 'That link is not valid any more. Ask for a new one.' : error.message);
      relays.failed(relays.current);
      setText('waiting-text', failures < 2 ? 'Connecting' : 'The relay does not answer. It is asked again.');
      await pause(webPlatform.clock, backoff(failures, Math.random()));
    }
  }
}

async function enter(link: Link, { user, sessions }: Me, relays: Origins): Promise<void> {
  const session = sessions.find(({ id }) => id === link.session) ?? sessions[0];
  if (session === undefined) return forget(`${visible(user.name)} has no session.`);
  app?.stop();
  if (last !== '' && last !== user.id) text.value = ''; // it is somebody else's
  last = user.id;
  setText('me', visible(user.name));
  const select = byId('sessions', HTMLSelectElement);
  select.replaceChildren(...sessions.map(({ id, dashboard }) => new Option(visible(dashboard || id), id, false, id === session.id)));
  setHidden('sessions-box', sessions.length < 2);
  select.onchange = () => void use({ ...link, session: select.value });
  document.body.dataset.view = 'panel';
  app = new App({ you: user, session, token: link.token, relays, origins, refused: () => expire('Your sign-in is over. Paste your link again: what you wrote is still here.') });
  if (left !== undefined) app.take(left);
  left = undefined;
  others = sessions.map(({ id }) => id);
  go = (id) => use({ ...link, session: id });
  await app.start();
  void wanted.look();
}

// The person's sessions, and the way to another one.
let others: string[] = [];
let go: (session: string) => Promise<void> = async () => {};

// converse shows a conversation that the console has asked for.
async function converse({ session, conversation }: { session: string; conversation: string }): Promise<boolean> {
  if (app === undefined || !others.includes(session)) return false;
  if (app.session !== session) await go(session);
  app?.converse(conversation);
  return true;
}

byId('sign-in').addEventListener('submit', (event) => {
  event.preventDefault();
  const link = readLink(byId('sign-in-link', HTMLInputElement).value, origins);
  if (typeof link === 'string') setText('sign-in-problem', unusable[link]);
  else void use(link);
});
byId('sign-out').addEventListener('click', () => {
  text.value = '';
  left = undefined;
  void forget();
});
setText('sign-in-origin', origins[0] ?? '');

const given = fromAddress();
const { [stored]: before } = await storage.session.get(stored);
if (given !== undefined) await use(given);
else if (isLink(before, origins)) await use(before);
else ask();
