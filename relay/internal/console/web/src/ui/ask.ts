// What the page says in passing, and what it asks.

import { byId, setHidden, setText } from './dom.ts';

const hintMs = 4_500;
const actionHintMs = 15_000; // time to read and to decide

export interface HintAction {
  label: string;
  run: () => void;
}

let timer: number | undefined;

// hint says something in passing, with something to do about it perhaps.
export function hint(text: string, action?: HintAction): void {
  const box = byId('hint');
  clearTimeout(timer);
  setText('hint-text', text);
  const button = byId('hint-action', HTMLButtonElement);
  setHidden(button, action === undefined);
  setText(button, action?.label ?? '');
  button.onclick = () => {
    box.classList.remove('shown');
    action?.run();
  };
  box.classList.add('shown');
  timer = window.setTimeout(() => box.classList.remove('shown'), action === undefined ? hintMs : actionHintMs);
}

// ask resolves to whether the person agreed.
export function ask(title: string, text: string, yes: string): Promise<boolean> {
  setText('ask-title', title);
  setText('ask-text', text);
  setText('ask-yes', yes);
  return agreed(byId('ask', HTMLDialogElement), byId('ask-no', HTMLButtonElement));
}

// agreed opens a dialog and resolves to whether its answer was yes. Escape, and no,
// the button that has the focus, leave everything as it is.
export function agreed(dialog: HTMLDialogElement, no: HTMLButtonElement): Promise<boolean> {
  dialog.returnValue = 'no';
  dialog.showModal();
  no.focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
  });
}
