// In the pages of our relays: says that the panel has opened, to whoever on the
// page listens, and takes what the console wants shown there to our worker.

import { answer, parsePlace, request, type Outcome } from './handover.ts';

chrome.runtime.onMessage.addListener((message, sender) => {
  if (sender.id !== chrome.runtime.id || (message as { type?: unknown } | null)?.type !== 'sidebarOpened') return;
  document.dispatchEvent(new CustomEvent('gstack-extension-ready'));
});

// It is sent on at once: only within the person's click may the panel be opened.
document.addEventListener(request, (event) => {
  const place = parsePlace((event as CustomEvent<unknown>).detail);
  if (place === undefined) return;
  chrome.runtime.sendMessage({ type: 'showConversation', ...place }).then((opened) => {
    const outcome: Outcome = opened === true ? 'opened' : 'closed';
    document.dispatchEvent(new CustomEvent(answer, { detail: outcome }));
  }, () => {}); // the extension is gone, or another: the page hears nothing
});
