// The popup: what is shared with whom, and what runs there. It shows what the
// worker says and tells it what the person wants; it decides nothing.

import './pages.css';
import { byId, h, keyed, setHidden, setText } from '@fairlead/console/ui/dom.ts';
import { configuration, ownOf } from './config.ts';
import { minutesLeft, summary, what } from './phrases.ts';
import { sitesBut, siteOf } from './sites.ts';
import type { State, Wish } from './told.ts';
import { front } from '../tabs/front.ts';
import { title } from '../tabs/url.ts';

let port: chrome.runtime.Port | undefined;
let shown: State | undefined;
let here: chrome.tabs.Tab | undefined;
const allowed = configuration().then((config) => sitesBut(ownOf(config)));

// connect is done again when the worker has ended: it does each half minute.
function connect(): chrome.runtime.Port {
  const mine = chrome.runtime.connect({ name: 'pages' });
  mine.onMessage.addListener((state) => {
    shown = state as State;
    void draw();
  });
  mine.onDisconnect.addListener(() => {
    if (port === mine) port = undefined;
    setTimeout(() => (port ??= connect()), 250);
  });
  return mine;
}

function wish(wanted: Wish): void {
  port ??= connect();
  port.postMessage(wanted);
}

async function look(): Promise<void> {
  here = await front();
  await draw();
}

async function draw(): Promise<void> {
  const may = (await allowed)(here?.url);
  if (shown === undefined) return;
  const { stopped, tabs, sessions, shares, attached, refused } = shown;
  const { text, tone } = summary(shown);
  setText('status-text', text);
  byId('status').dataset.tone = tone;
  setHidden('stopped', !stopped);
  setHidden('stop', stopped);
  setHidden('managed', tabs !== 'all');
  setHidden('list-box', shares.length === 0);
  setHidden('refused', refused === 0);
  setText('refused', refused === 1 ? 'One message of a page was refused: it came too fast.' : `${refused} messages of pages were refused: they came too fast.`);
  drawHere(may, stopped || tabs === 'all', sessions, shares);
  keyed(byId('list'), shares, (s) => `${s.tabId} ${s.sessionId}`, create, (row, share) => {
    setText(row.querySelector('b') ?? row, share.title === '' ? 'A page that no command touches' : share.title);
    setText(row.querySelector('.host') ?? row, siteOf(share.url)?.host ?? '');
    setText(row.querySelector('.with') ?? row, `with ${share.name}, ${minutesLeft(share.expiresAt, Date.now())}`);
    setText(row.querySelector('.last') ?? row, what(share, Date.now()));
    row.toggleAttribute('data-attached', attached.includes(share.tabId));
  });
}

function create({ tabId, sessionId, title }: State['shares'][number]): HTMLElement {
  const end = h('button', { class: 'button', type: 'button', 'data-testid': 'btn-unshare', 'aria-label': `Stop sharing ${title}` }, 'Stop sharing');
  end.addEventListener('click', () => wish({ do: 'unshare', tabId, sessionId }));
  return h('li', { class: 'row' }, h('div', {}, h('b'), h('span', { class: 'host' }), h('span', { class: 'with' }), h('span', { class: 'last' })), end);
}

function drawHere(may: boolean, never: boolean, sessions: State['sessions'], shares: State['shares']): void {
  setHidden('this', never);
  setText('this-name', may ? title(here?.title) : 'Not a tab to share');
  setText('this-host', may ? (siteOf(here?.url)?.host ?? '') : '');
  const open = [...new Map(sessions.map((s) => [s.id, s])).values()].filter((s) => !shares.some((share) => share.tabId === here?.id && share.sessionId === s.id));
  setText('this-why', why(may, sessions.length, open.length));
  setHidden('share', !may || open.length === 0);
  const select = byId('session', HTMLSelectElement);
  const before = select.value;
  const options = JSON.stringify(open.map(({ id, name }) => [id, name]));
  if (select.dataset.options === options) return;
  select.dataset.options = options;
  select.replaceChildren(...open.map(({ id, name }) => h('option', { value: id }, name)));
  if (open.some(({ id }) => id === before)) select.value = before;
}

function why(may: boolean, known: number, open: number): string {
  if (!may) return 'No command touches the browser’s own pages, or the console.';
  if (known === 0) return 'Open a session in the console, in another tab. Then this one can be shared with it.';
  return open === 0 ? 'It is shared.' : 'While it is shared, that session sees it and can click and type in it.';
}

byId('share', HTMLFormElement).addEventListener('submit', (event) => {
  event.preventDefault();
  if (here?.id === undefined) return;
  wish({ do: 'share', tabId: here.id, sessionId: byId('session', HTMLSelectElement).value, minutes: Number(byId('minutes', HTMLSelectElement).value) });
});
byId('stop').addEventListener('click', () => wish({ do: 'stop' }));
byId('resume').addEventListener('click', () => wish({ do: 'resume' }));
setHidden('sync', !('cookies' in chrome));
setHidden('panel', !('sidePanel' in chrome));
byId('panel').addEventListener('click', () => {
  if (here !== undefined) void chrome.sidePanel.open({ windowId: here.windowId }).then(() => window.close());
});
chrome.tabs.onActivated.addListener(() => void look());
chrome.tabs.onUpdated.addListener((_, { url, title }) => void ((url ?? title) !== undefined && look()));
setInterval(() => void draw(), 5_000); // minutes pass

port = connect();
void look();
