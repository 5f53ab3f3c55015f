// The part of sealed sync that has no page. Chrome ends it after half a minute: what
// matters is in storage, and an alarm brings the next one while there is any.

import { later } from '../pages/told.ts';
import { configuration } from './config.ts';
import { keyStore } from './keep.ts';
import { ControlPlane } from './pairing.ts';
import { Sender } from './sender.ts';
import { patterns } from './site.ts';
import type { Wish } from './told.ts';

const alarm = 'sync';
const ordinary = '0'; // the cookies of windows that aren't private ones
const aliveMs = 20_000;
const popups = new Set<chrome.runtime.Port>();
let timer: ReturnType<typeof setTimeout> | undefined;
let isArmed: boolean | undefined; // until it is known

const begun = begin();

async function begin(): Promise<Sender> {
  const { origins, controlPlane } = await configuration();
  return new Sender({
    local: chrome.storage.local, session: chrome.storage.session, keys: keyStore,
    // An empty partitionKey asks for partitioned ones as well: they are counted.
    cookies: (site) => chrome.cookies.getAll({ domain: site, storeId: ordinary, partitionKey: {} }),
    permitted: (site) => chrome.permissions.contains({ origins: patterns(site) }).catch(() => false),
    giveBack: async (site) => void (await chrome.permissions.remove({ origins: patterns(site) }).catch(() => false)), // one of the manifest's own stays
    fetch: posted,
    control: (token) => new ControlPlane(controlPlane, token),
    origins, controlPlane, name: nameOf(navigator),
    now: () => Date.now(), random: () => Math.random(), wake, changed: later(() => void tellAll(), 50),
  });
}

function nameOf({ userAgentData }: Navigator & { userAgentData?: { platform?: string } }): string {
  const platform = userAgentData?.platform ?? '';
  return platform === '' ? 'Browser' : `Browser on ${platform}`;
}

// posted is fetch, with a worker that lives until the answer is there: a call of
// Chrome's API is what it counts.
async function posted(...what: Parameters<typeof fetch>): Promise<Response> {
  const alive = setInterval(() => void chrome.storage.session.get('alive'), aliveMs);
  try {
    return await fetch(...what);
  } finally {
    clearInterval(alive);
  }
}

function wake(at: number | undefined, left: boolean): void {
  clearTimeout(timer);
  if (at !== undefined) timer = setTimeout(() => void begun.then((sender) => sender.tick()), Math.max(0, at - Date.now()));
  if (left === isArmed) return;
  isArmed = left;
  void (left ? chrome.alarms.create(alarm, { periodInMinutes: 0.5 }) : chrome.alarms.clear(alarm));
}

chrome.alarms.onAlarm.addListener(({ name }) => void (name === alarm && begun.then((sender) => sender.tick())));

chrome.cookies.onChanged.addListener(({ cookie }) => {
  if (cookie.storeId === undefined || cookie.storeId === ordinary) void begun.then((sender) => sender.touched(cookie.domain));
});
for (const event of [chrome.permissions.onAdded, chrome.permissions.onRemoved]) event.addListener(() => void begun.then((sender) => sender.permissions()));
chrome.runtime.onStartup.addListener(() => void begun.then((sender) => sender.again())); // sessions have ended with the browser
chrome.runtime.onInstalled.addListener(() => void begun.then((sender) => sender.again()));
chrome.storage.session.onChanged.addListener(({ link }) => {
  if (link !== undefined) void begun.then((sender) => sender.linked(link.newValue));
});

chrome.runtime.onConnect.addListener((port) => {
  if (port.name !== 'sync' || port.sender?.id !== chrome.runtime.id) return;
  popups.add(port);
  port.onDisconnect.addListener(() => void popups.delete(port));
  port.onMessage.addListener((wanted) => void begun.then((sender) => sender.wish(wanted as Wish)));
  void begun.then(async (sender) => {
    await sender.ready;
    tell(port, sender);
    await sender.meet();
  });
});

async function tellAll(): Promise<void> {
  const sender = await begun;
  for (const port of popups) tell(port, sender);
}

function tell(port: chrome.runtime.Port, sender: Sender): void {
  try {
    port.postMessage(sender.state());
  } catch {
    popups.delete(port); // it has just ended
  }
}

// The button opens the popup, which leads on to the side panel where there is one.
if ('sidePanel' in chrome) void chrome.sidePanel.setPanelBehavior({ openPanelOnActionClick: false });
