// Runs one order on one tab: attach, look, send, look again, and detach whatever
// happens. The page may go elsewhere at any moment, so it is looked at before and
// after; while we are attached no document of ours can load there.

import type { Order } from './checks.ts';
import { skewMs } from './command.ts';
import type { Outcome } from './ledger.ts';
import { noTarget, Refusal } from './refusal.ts';
import type { Allowed } from './sites.ts';

export interface Tab {
  url?: string | undefined;
  pendingUrl?: string | undefined;
  discarded?: boolean | undefined;
}

// What of a browser it needs.
export interface Browser {
  tab: (id: number) => Promise<Tab>;
  attach: (tab: number) => Promise<void>;
  send: (tab: number, method: string, params: object) => Promise<unknown>;
  detach: (tab: number) => Promise<void>;
}

export interface Surroundings {
  browser: Browser;
  allowed: Allowed;
  ours: readonly string[]; // origins whose documents may not load meanwhile
  shared: (tabId: number, sessionId: string) => Promise<boolean>;
  stopped: () => boolean;
  ended: (tabId: number) => Promise<string>; // resolves with a reason when the tab is detached from outside
  attached: (tabId: number, on: boolean) => void;
  now: () => number;
  late: (ms: number) => { wait: Promise<void>; cancel: () => void }; // resolves after so long
}

const shortestMs = 5_000; // of a call, whose clock may be off

export async function run(order: Order, s: Surroundings): Promise<Outcome> {
  const began = s.now();
  const base = (): { at: number; durationMs: number } => ({ at: s.now(), durationMs: Math.max(0, s.now() - began) });
  try {
    const response = await drive(order, s);
    return { status: 'ok', ...base(), result: { kind: 'cdp.send', tabId: order.target.tabId, method: order.method, response: response ?? {} } };
  } catch (e) {
    if (e === late) return { status: 'unknown', ...base() };
    const error = e instanceof Refusal ? e.fault : noTarget('the tab couldn’t be reached').fault;
    return { status: 'error', ...base(), error };
  }
}

// late is thrown for a call that was sent, and whose answer nobody will get.
const late = new Error('late');

async function drive(order: Order, s: Surroundings): Promise<unknown> {
  const { target: { tabId, sessionId } } = order;
  if (s.now() > order.issuedAt + order.ttlMs + skewMs) throw new Refusal('ExpiredError', 'the command has expired while it waited');
  if (s.stopped()) throw noTarget(stopped);
  if (sessionId !== '' && !(await s.shared(tabId, sessionId))) throw noTarget('the tab is not shared with that session');
  await look(tabId, s);
  try {
    await s.browser.attach(tabId);
  } catch (e) {
    throw noTarget(reason(e));
  }
  s.attached(tabId, true);
  try {
    return await call(order, s);
  } finally {
    await s.browser.detach(tabId).catch(() => undefined); // it may be gone
    s.attached(tabId, false);
  }
}

const stopped = 'the person has stopped all commands in this browser';

async function call(order: Order, s: Surroundings): Promise<unknown> {
  const { target: { tabId, sessionId }, method, params } = order;
  const end = s.ended(tabId).then((why) => Promise.reject(noTarget(why)));
  end.catch(() => undefined); // nobody may wait for it any more
  const limit = s.late(Math.max(shortestMs, order.issuedAt + order.ttlMs - s.now()));
  let sent = false;
  const over = limit.wait.then(() => Promise.reject(sent ? late : new Refusal('ExpiredError', 'the command has expired before it was sent')));
  over.catch(() => undefined);
  const or = <T>(what: Promise<T>): Promise<T> => Promise.race([what, end, over]);
  try {
    await or(fence(tabId, s));
    await or(look(tabId, s));
    if (method === 'Page.navigateToHistoryEntry') await or(mayGoTo(tabId, params.entryId, s));
    if (s.stopped()) throw noTarget(stopped);
    if (sessionId !== '' && !(await s.shared(tabId, sessionId))) throw noTarget('the tab is not shared with that session any more');
    sent = true;
    const response = await or(s.browser.send(tabId, method, params).catch((e: unknown) => Promise.reject(cutOff(e) ? late : noTarget(reason(e)))));
    await or(look(tabId, s));
    return method === 'Page.getNavigationHistory' ? withoutOurs(response, s.allowed) : response;
  } finally {
    limit.cancel();
  }
}

// look throws unless the tab is at a site now, and not on its way to one of ours.
async function look(tabId: number, { browser, allowed }: Surroundings): Promise<void> {
  const tab = await browser.tab(tabId).catch(() => Promise.reject(noTarget('No such tab')));
  if (tab.discarded === true) throw noTarget('the tab is asleep');
  if (!allowed(tab.url) || (tab.pendingUrl !== undefined && tab.pendingUrl !== '' && !allowed(tab.pendingUrl))) throw noTarget('the tab is not at a site that commands may touch');
}

// fence keeps documents of ours out of the tab while we are attached: requests for
// them are held up, and fail.
async function fence(tabId: number, { browser, ours }: Surroundings): Promise<void> {
  const patterns = ours.flatMap((origin) => [origin, origin.replace('://', '://*.')]).map((origin) => ({ urlPattern: `${origin}/*`, resourceType: 'Document', requestStage: 'Request' }));
  await browser.send(tabId, 'Fetch.enable', { patterns }).catch(() => Promise.reject(noTarget('the tab couldn’t be guarded')));
}

interface Visit {
  id: number;
  url: string;
  userTypedURL?: string;
  title?: string;
}

const visits = (history: unknown): Visit[] => (history as { entries?: Visit[] } | undefined)?.entries ?? [];

// mayGoTo throws unless a place in the tab's history is one that it may be at.
async function mayGoTo(tabId: number, entryId: unknown, { browser, allowed }: Surroundings): Promise<void> {
  const history = await browser.send(tabId, 'Page.getNavigationHistory', {});
  if (!allowed(visits(history).find(({ id }) => id === entryId)?.url)) throw noTarget('that place in the tab’s history is none that commands may touch');
}

// withoutOurs leaves out where the tab has been that isn't a command's business:
// the console's address may hold what a person signs in with.
function withoutOurs(history: unknown, allowed: Allowed): unknown {
  const entries = visits(history).map((visit) => (allowed(visit.url) ? visit : { ...visit, url: '', userTypedURL: '', title: '' }));
  return { ...(history as object), entries };
}

// cutOff tells whether a call had reached the tab when the debugger was taken off,
// as when the browser ends: it may have been done.
const cutOff = (e: unknown): boolean => reason(e).startsWith('Detached while handling command');

// reason is what Chrome says of a failure. It is about the tab, and of no length.
function reason(e: unknown): string {
  const text = e instanceof Error ? e.message : String((e as { message?: unknown } | undefined)?.message ?? e);
  const said = text.startsWith('{') ? messageIn(text) : text;
  return said.replace(/\p{C}/gu, ' ').slice(0, 200);
}

function messageIn(text: string): string {
  try {
    return String((JSON.parse(text) as { message?: unknown }).message);
  } catch {
    return text;
  }
}
