// The page that opens once, when the extension is installed. Its arrow points to
// where the panel will be, until the panel is there and connected.

import './welcome.css';

chrome.runtime.onMessage.addListener((message, sender) => {
  if (sender.id === chrome.runtime.id && (message as { type?: unknown } | null)?.type === 'sidebarOpened') {
    document.dispatchEvent(new CustomEvent('gstack-extension-ready'));
  }
});

document.addEventListener('gstack-extension-ready', () => {
  document.querySelector('.arrow')?.classList.add('hidden');
  document.body.dataset.ready = '';
});
