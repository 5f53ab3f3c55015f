// The part of the panel that has no page: opens the panel when the button is
// clicked, and tells pages of ours that it has opened. It keeps nothing, since
// Chrome ends it after half a minute.

import { configuration } from './config.ts';

void chrome.sidePanel.setPanelBehavior({ openPanelOnActionClick: true });

chrome.runtime.onInstalled.addListener(({ reason }) => {
  if (reason === 'install') void chrome.tabs.create({ url: chrome.runtime.getURL('welcome.html') });
});

// Only our own pages, and only what is known.
chrome.runtime.onMessage.addListener((message, sender) => {
  if (sender.id !== chrome.runtime.id || (message as { type?: unknown } | null)?.type !== 'sidebarOpened') return;
  void tell();
});

// tell passes it on to the tabs in which our content script is: those of the
// relays. The one in front is among them, if it is one of theirs.
async function tell(): Promise<void> {
  const { origins } = await configuration();
  const tabs = await chrome.tabs.query({ url: origins.map((origin) => `${origin}/*`) });
  await Promise.allSettled(tabs.map((tab) => (tab.id === undefined ? undefined : chrome.tabs.sendMessage(tab.id, { type: 'sidebarOpened' }))));
}
