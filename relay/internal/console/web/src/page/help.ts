// The help, with what can be chosen there.

import { byId, closeMenu } from '../ui/dom.ts';
import { browser } from '../ui/storage.ts';

// help lets the dialog be opened, and every dialog be closed by its button.
// readAloud: the screen is to be described to a screen reader, or no longer.
export function help(readAloud: (on: boolean) => void): void {
  const dialog = byId('help', HTMLDialogElement);
  const revision = document.querySelector('meta[name=fairlead-revision]')?.getAttribute('content');
  byId('revision').textContent = revision ? `fairlead ${revision}` : '';
  byId('help-open', HTMLButtonElement).addEventListener('click', () => {
    closeMenu();
    dialog.showModal();
  });
  for (const button of document.querySelectorAll('dialog .close')) {
    button.addEventListener('click', () => button.closest('dialog')?.close());
  }
  const reader = byId('reader', HTMLInputElement);
  reader.checked = browser.get('reader') === 'on';
  reader.addEventListener('change', () => {
    browser.set('reader', reader.checked ? 'on' : null);
    readAloud(reader.checked);
  });
}
