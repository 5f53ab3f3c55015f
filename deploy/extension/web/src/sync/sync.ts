// The popup of sealed sync: what is paired, which sites, what came of it. It shows
// what the worker says and tells it what the person wants; only what Chrome asks her
// must be asked from here, within her click.

import './sync.css';
import { byId, h, keyed, setHidden, setText } from '@fairlead/console/ui/dom.ts';
import { plural } from '@fairlead/console/sync/model.ts';
import { front } from '../tabs/front.ts';
import { again, ago, cameOf, notes, summary } from './phrases.ts';
import { choices, covers, patterns } from './site.ts';
import type { State, Wish } from './told.ts';

let port: chrome.runtime.Port | undefined;
let shown: State | undefined;
let here: chrome.tabs.Tab | undefined;

// connect is done again when the worker has ended: it does each half minute.
function connect(): chrome.runtime.Port {
  const mine = chrome.runtime.connect({ name: 'sync' });
  mine.onMessage.addListener((state) => {
    shown = state as State;
    draw();
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
  draw();
}

function draw(): void {
  if (shown === undefined) return;
  const { pairing, busy, signedIn, sessions } = shown;
  const { text, tone } = summary(shown);
  setText('status-text', text);
  byId('status').dataset.tone = tone;
  drawProblem(shown);
  // Who is paired needs to sign in to end it, and for nothing else.
  setHidden('sign-in', signedIn || (pairing !== null && !shown.mayForget));
  setHidden('pair', pairing !== null || !signedIn);
  drawChoices('session', sessions.map(({ id, name }) => [id, name]), shown.session);
  setHidden('session', sessions.length < 2);
  setHidden('pair-none', sessions.length > 0 || busy !== '' || shown.problem !== '');
  byId('pair-button', HTMLButtonElement).disabled = busy !== '' || sessions.length === 0;
  setHidden('paired', pairing === null);
  setText('paired-with', pairing === null ? '' : pairing.session === '' ? 'Fingerprint' : `${pairing.session}, fingerprint`);
  setText('fingerprint', pairing?.fingerprint ?? '');
  setHidden('warning', (pairing?.warning ?? '') === '');
  setText('warning', pairing?.warning ?? '');
  drawHere(shown);
  drawList(shown);
  drawLast(shown);
  setHidden('sign-out-box', !signedIn);
  setHidden('sign-out-stays', pairing === null);
  drawFoot(shown);
}

function drawProblem({ problem, next, mayForget }: State): void {
  setHidden('problem', problem === '');
  setText('problem-text', problem);
  setText('problem-next', again(next, Date.now()));
  setHidden('forget', !mayForget);
}

// drawChoices fills a select anew only when something else is to be chosen from.
function drawChoices(id: string, options: [value: string, text: string][], first: string): void {
  const select = byId(id, HTMLSelectElement);
  const key = JSON.stringify(options);
  if (select.dataset.options === key) return;
  select.dataset.options = key;
  const before = select.value || first;
  select.replaceChildren(...options.map(([value, text]) => h('option', { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}

function drawHere({ pairing, sites, ours }: State): void {
  setHidden('this', pairing === null);
  const all = choices(here?.url, ours);
  const open = all.filter((site) => !sites.some((s) => covers(s.site, site)));
  const listed = all.length > 0 && sites.some((s) => covers(s.site, all.at(-1) ?? ''));
  setText('this-why', all.length === 0 ? 'Open a site in a tab, and then this popup there, to add it.' : listed ? 'It is on your list.' : 'With all that is below it. Chrome asks you for this site alone.');
  setHidden('add', listed || open.length === 0);
  drawChoices('site', open.map((site) => [site, site]), open[0] ?? '');
}

function drawList({ pairing, sites }: State): void {
  setHidden('list-box', pairing === null || sites.length === 0);
  keyed(byId('list'), sites, ({ site }) => site, ({ site }) => {
    const remove = h('button', { class: 'button', type: 'button', 'data-testid': 'btn-remove', 'aria-label': `Remove ${site}` }, 'Remove');
    remove.addEventListener('click', () => wish({ do: 'remove', site }));
    return h('li', { class: 'row' }, h('div', {}, h('b', {}, site), h('span', { class: 'host' })), remove);
  }, (row, { cookies }) => setText(row.querySelector('.host') ?? row, plural(cookies, 'cookie')));
}

function drawLast({ last, pairing }: State): void {
  setHidden('last-box', last === null || pairing === null);
  if (last === null) return;
  setText('last-text', `${ago(last.at, Date.now())}: ${cameOf(last)}`);
  keyed(byId('notes'), notes(last), (line) => line, (line) => h('li', {}, line), () => undefined);
}

function drawFoot({ pairing, busy, sites }: State): void {
  const others = { pages: 'debugger' in chrome, panel: 'sidePanel' in chrome };
  setHidden('pages', !others.pages);
  setHidden('panel', !others.panel);
  setHidden('send', pairing === null);
  setHidden('stop', pairing === null);
  setHidden('foot', pairing === null && !others.pages && !others.panel);
  byId('send', HTMLButtonElement).disabled = busy !== '' || sites.length === 0;
  byId('stop', HTMLButtonElement).disabled = busy === 'stopping';
}

byId('sign-in', HTMLFormElement).addEventListener('submit', (event) => {
  event.preventDefault();
  const field = byId('link', HTMLInputElement);
  wish({ do: 'sign-in', link: field.value });
  field.value = '';
});
byId('pair', HTMLFormElement).addEventListener('submit', (event) => {
  event.preventDefault();
  wish({ do: 'pair', session: byId('session', HTMLSelectElement).value });
});
byId('add', HTMLFormElement).addEventListener('submit', (event) => {
  event.preventDefault();
  const site = byId('site', HTMLSelectElement).value;
  if (site === '') return;
  wish({ do: 'add', site });
  // Nothing is waited for: Chrome asks only within the click.
  void chrome.permissions.request({ origins: patterns(site) }).catch(() => false).then((granted) => wish({ do: 'added', site, granted }));
});
byId('send').addEventListener('click', () => wish({ do: 'send' }));
byId('stop').addEventListener('click', () => wish({ do: 'stop' }));
byId('forget').addEventListener('click', () => wish({ do: 'forget' }));
byId('sign-out').addEventListener('click', () => wish({ do: 'sign-out' }));
byId('panel').addEventListener('click', () => {
  if (here !== undefined) void chrome.sidePanel.open({ windowId: here.windowId }).then(() => window.close());
});
chrome.tabs.onActivated.addListener(() => void look());
chrome.tabs.onUpdated.addListener((_, { url }) => void (url !== undefined && look()));
setInterval(draw, 5_000); // minutes pass

port = connect();
void look();
