// The part of the panel that has no page: opens the panel when the button is
// clicked, or when the console wants a conversation shown there, and tells pages of
// ours that it has opened. It keeps nothing, since Chrome ends it after half a minute.

import { configuration } from './config.ts';
import { readPlace } from './handover.ts';
import { want } from './wanted.ts';

void chrome.sidePanel.setPanelBehavior({ openPanelOnActionClick: true });

chrome.runtime.onInstalled.addListener(({ reason }) => {
  if (reason === 'install') void chrome.tabs.create({ url: chrome.runtime.getURL('welcome.html') });
});

// Only our own pages and scripts, and only what is known.
chrome.runtime.onMessage.addListener((message, sender, respond) => {
  if (sender.id !== chrome.runtime.id) return false;
  const { type } = (message ?? {}) as { type?: unknown };
  if (type === 'sidebarOpened') void tell();
  const place = readPlace(message);
  if (type !== 'showConversation' || place === undefined || sender.tab?.id === undefined) return false;
  // Before anything is waited for: the click is over by then.
  const opened = chrome.sidePanel.open({ tabId: sender.tab.id }).then(() => true, () => false);
  void want(place).then(() => opened).then(respond, () => respond(false));
  return true; // the answer comes later
});

// tell passes it on to the tabs in which our content script is: those of the
// relays. The one in front is among them, if it is one of theirs.
async function tell(): Promise<void> {
  const { origins } = await configuration();
  const tabs = await chrome.tabs.query({ url: origins.map((origin) => `${origin}/*`) });
  await Promise.allSettled(tabs.map((tab) => (tab.id === undefined ? undefined : chrome.tabs.sendMessage(tab.id, { type: 'sidebarOpened' }))));
}
