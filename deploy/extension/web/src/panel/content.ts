// In the pages of our relays: says that the panel has opened, to whoever on the
// page listens, and nothing else.

chrome.runtime.onMessage.addListener((message, sender) => {
  if (sender.id !== chrome.runtime.id || (message as { type?: unknown } | null)?.type !== 'sidebarOpened') return;
  document.dispatchEvent(new CustomEvent('gstack-extension-ready'));
});
