// The part of signed commands that has no page. Chrome ends it after half a minute:
// what matters is in storage, and an alarm brings the next one while there is any.

import { Attached } from './attached.ts';
import { Callbacks, post } from './callback.ts';
import { isDriver, isOurPage, isText, type Sender } from './checks.ts';
import { configuration, origins, ownOf } from './config.ts';
import { answerTo, type Answer, Intake, refusalOf } from './intake.ts';
import { fetchKeys, Keys } from './keys.ts';
import { Ledger } from './ledger.ts';
import { Bucket } from './rate.ts';
import { malformed, tooMuch } from './refusal.ts';
import { run } from './runner.ts';
import { longestMs, readSession, Shares } from './shares.ts';
import { sitesBut } from './sites.ts';
import { later, type State, tell, type Wish } from './told.ts';

const { local, session } = chrome.storage;
const names = { alarm: 'pages', browser: 'pages.browserId', stopped: 'pages.stopped', refused: 'pages.refused' };
const worker = crypto.randomUUID();
const now = (): number => Date.now();
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

// A page may say so much: a hundred commands at once, and then some.
const bucket = new Bucket(256, 32);
const mostPorts = 16;
const ports = new Set<chrome.runtime.Port>();
const popups = new Set<chrome.runtime.Port>();
let stopped = true; // until it is known
let refused = 0;

const attached = new Attached(() => told());
const shares = new Shares(session, now, () => told());
const ledger = new Ledger(local, worker, now);
const callbacks = new Callbacks(ledger, post, now, pause);
const told = later(() => void tellAll(), 50);

// begin is done once in a worker's life, before anything else.
const begun = begin();

async function begin() {
  const [config, kept] = await Promise.all([configuration(), local.get([names.browser, names.stopped]), count()]);
  stopped = kept[names.stopped] === true;
  attached.stop(stopped);
  let browserId = kept[names.browser];
  if (typeof browserId !== 'string' || !/^br_[a-z2-7]{26}$/.test(browserId)) {
    browserId = `br_${Array.from(crypto.getRandomValues(new Uint8Array(26)), (byte) => 'abcdefghijklmnopqrstuvwxyz234567'[byte & 31]).join('')}`;
    await local.set({ [names.browser]: browserId });
  }
  const ours = ownOf(config);
  const allowed = sitesBut(ours);
  const fetch = config.jwks === '' ? undefined : () => fetchKeys(config.jwks);
  const keys = new Keys({ area: session, builtIn: JSON.stringify(config.keys), fetch, now });
  const here = () => ({ extensionId: chrome.runtime.id, browserId: browserId as string, tabs: config.tabs, origins, allowed, stopped, verify: (token: Parameters<Keys['verify']>[0]) => keys.verify(token), now });
  const intake = new Intake({
    here, ledger, callbacks, arm,
    run: (order) => run(order, {
      browser, allowed, ours, now, shared: (tab, id) => shares.has(tab, id), stopped: () => stopped,
      ended: (tab) => attached.ended(tab), attached: (tab, on) => attached.set(tab, on), late,
    }),
    ran: (order, { status }) => void shares.ran(order.target.tabId, order.target.sessionId, order.method, status !== 'ok'),
  });
  return { config, browserId: browserId as string, allowed, intake };
}

// count remembers how many messages were too many.
async function count(): Promise<void> {
  const { [names.refused]: before } = await session.get(names.refused);
  refused += typeof before === 'number' ? before : 0;
}

const keepCount = later(() => void session.set({ [names.refused]: refused }), 1_000);

const browser = {
  tab: (id: number) => chrome.tabs.get(id),
  attach: async (tabId: number) => {
    try {
      await chrome.debugger.attach({ tabId }, '1.3');
    } catch (e) {
      // A worker that died may have left us attached. Others we can't detach.
      if (!(await chrome.debugger.detach({ tabId }).then(() => true, () => false))) throw e;
      await chrome.debugger.attach({ tabId }, '1.3');
    }
  },
  send: (tabId: number, method: string, params: object) => chrome.debugger.sendCommand({ tabId }, method, params),
  detach: (tabId: number) => chrome.debugger.detach({ tabId }),
};

function late(ms: number): { wait: Promise<void>; cancel: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const wait = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
  return { wait, cancel: () => clearTimeout(timer) };
}

let armed: Promise<void> | undefined;

function arm(): Promise<void> {
  armed ??= chrome.alarms.create(names.alarm, { periodInMinutes: 0.5 });
  return armed;
}

// resume goes on with what workers before this one have left, and with their tabs.
async function resume(): Promise<void> {
  await begun;
  for (const { tabId } of await ledger.lost()) await chrome.debugger.detach({ tabId }).catch(() => undefined);
  await callbacks.resume();
  watch((await shares.next()) !== undefined);
}

chrome.alarms.onAlarm.addListener(({ name }) => void (name === names.alarm && tidy()));

async function tidy(): Promise<void> {
  await resume();
  await ledger.prune();
  told(); // of shares that have ended by themselves
  if ((await ledger.busy()) || (await shares.next()) !== undefined) return;
  armed = undefined;
  await chrome.alarms.clear(names.alarm);
  if ((await ledger.busy()) || (await shares.next()) !== undefined) await arm(); // something came meanwhile
}

// What comes from pages. Who isn't a page of ours gets no answer at all.
chrome.runtime.onMessageExternal.addListener((message, sender, respond) => {
  if (!isDriver(message) || !isOurPage(sender as Sender, origins)) return false;
  if (!bucket.take(now())) {
    refused++;
    keepCount();
    told();
    respond(answerTo(message, { error: tooMuch('too many messages').fault }));
    return false;
  }
  void answer(message, sender.origin ?? '').then(respond);
  return true;
});

async function answer(message: Record<string, unknown>, origin: string): Promise<Answer> {
  try {
    const { browserId, config, intake } = await begun;
    if (message.action !== 'describe') return await intake.invoke(message);
    if (!isText(message.requestId)) throw malformed('requestId must be a short text');
    if (message.session !== undefined) {
      const named = readSession(message.session, origin);
      if (named === undefined) throw malformed('session must have an id');
      await shares.know(named);
    }
    return answerTo(message, { data: { browserId, version: chrome.runtime.getManifest().version, tabs: config.tabs } });
  } catch (e) {
    return answerTo(message, { error: refusalOf(e) });
  }
}

chrome.runtime.onConnectExternal.addListener((port) => {
  if (port.name !== 'driver' || port.sender === undefined || !isOurPage(port.sender as Sender, origins) || ports.size >= mostPorts) return port.disconnect();
  ports.add(port);
  port.onDisconnect.addListener(() => void ports.delete(port));
  port.onMessage.addListener((message) => {
    const { type, tabId, sessionId } = (message ?? {}) as Record<string, unknown>;
    if (type !== 'unshare') return;
    if (bucket.take(now())) void unshare(port.sender?.origin ?? '', tabId, sessionId);
    else refused++;
  });
  void tellPort(port);
});

// unshare ends a share that the page may know of.
async function unshare(origin: string, tabId: unknown, sessionId: unknown): Promise<void> {
  const theirs = await shares.of(origin);
  await shares.end((s) => s.tabId === tabId && s.sessionId === sessionId && theirs.some((t) => t.tabId === s.tabId && t.sessionId === s.sessionId));
}

async function tellPort(port: chrome.runtime.Port): Promise<void> {
  const { browserId } = await begun;
  send(port, { type: 'shared', browserId, tabs: await describe(await shares.of(port.sender?.origin ?? '')) });
}

const send = (port: chrome.runtime.Port, message: unknown): void => {
  try {
    port.postMessage(message);
  } catch {
    ports.delete(port); // it has just ended
    popups.delete(port);
  }
};

async function describe<S extends Awaited<ReturnType<Shares['list']>>[number]>(list: S[]) {
  const { allowed } = await begun;
  return await Promise.all(list.map(async (share) => tell(share, await chrome.tabs.get(share.tabId).catch(() => undefined), attached.has(share.tabId), allowed)));
}

async function tellAll(): Promise<void> {
  watch((await shares.next()) !== undefined);
  for (const port of ports) void tellPort(port);
  if (popups.size === 0) return;
  const current = await state();
  for (const popup of popups) send(popup, current);
}

async function state(): Promise<State> {
  const { browserId, config } = await begun;
  const list = await shares.list();
  const described = await describe(list);
  return {
    tabs: config.tabs, browserId, stopped, sessions: await shares.sessions(), attached: attached.tabs, refused,
    shares: described.map((tab, i) => ({ ...tab, name: list[i]?.name ?? '', ...(list[i]?.last === undefined ? {} : { last: list[i].last }) })),
  };
}

// The popup says what the person wants, and is shown what is so.
chrome.runtime.onConnect.addListener((port) => {
  if (port.name !== 'pages' || port.sender?.id !== chrome.runtime.id || port.sender.origin !== location.origin) return;
  popups.add(port);
  port.onDisconnect.addListener(() => void popups.delete(port));
  port.onMessage.addListener((message) => void obey(message as Wish));
  void state().then((current) => send(port, current));
});

async function obey(wish: Wish): Promise<void> {
  const { allowed } = await begun;
  switch (wish.do) {
    case 'share': {
      const tab = await chrome.tabs.get(wish.tabId).catch(() => undefined);
      if (!allowed(tab?.url)) return told();
      await arm();
      await shares.add(wish.tabId, wish.sessionId, Math.min(wish.minutes * 60_000, longestMs));
      return;
    }
    case 'unshare':
      return await shares.end((s) => s.tabId === wish.tabId && s.sessionId === wish.sessionId);
    case 'stop':
      return await stop(true);
    case 'resume':
      return await stop(false);
  }
}

// stop detaches all and refuses from then on, until the person allows it again.
async function stop(on: boolean): Promise<void> {
  stopped = on;
  attached.stop(on);
  await local.set({ [names.stopped]: on });
  if (on) {
    attached.endAll('the person has stopped all commands in this browser');
    await shares.end(() => true);
  }
  told();
}

chrome.debugger.onDetach.addListener(({ tabId }, why) => {
  if (tabId === undefined) return;
  attached.end(tabId, why === 'target_closed' ? 'the tab was closed' : 'the tab was detached');
  if (why === 'canceled_by_user') void begun.then(() => stop(true)); // by the button that Chrome itself shows
});

// A document of ours that would load in a tab while we are attached doesn't.
chrome.debugger.onEvent.addListener((source, method, params) => {
  if (method === 'Fetch.requestPaused') void chrome.debugger.sendCommand(source, 'Fetch.failRequest', { requestId: params?.requestId, errorReason: 'BlockedByClient' }).catch(() => undefined);
});

// watch listens to what becomes of tabs while any is shared. Otherwise each page that
// the person opens would bring a worker.
let watching = false;

function watch(on: boolean): void {
  if (on === watching) return;
  watching = on;
  const [removed, updated] = [chrome.tabs.onRemoved, chrome.tabs.onUpdated];
  if (on) removed.addListener(closed);
  else removed.removeListener(closed);
  if (on) updated.addListener(changed);
  else updated.removeListener(changed);
}

const closed = (tab: number): void => void shares.end((s) => s.tabId === tab);
const changed = (tab: number, { url, title }: { url?: string; title?: string }): void => {
  if (url !== undefined || title !== undefined) void shares.list().then((list) => list.some((s) => s.tabId === tab) && told());
};
chrome.runtime.onStartup.addListener(() => undefined); // so that a worker comes

// The button opens the popup, which leads on to the side panel where there is one.
if ('sidePanel' in chrome) void chrome.sidePanel.setPanelBehavior({ openPanelOnActionClick: false });

void resume();
