// How the connection stands, in a word, and the card that takes the terminal's
// place when there is none to show.

import { byId, setAttribute, setHidden, setText } from '../ui/dom.ts';
import type { Tone } from './model.ts';

export interface Card {
  title: string;
  text: string;
  action?: { label: string; run: () => void };
}

export function status(text: string, tone: Tone): void {
  setAttribute('status', 'data-tone', tone);
  setText('status-text', text);
}

export function card(card: Card | null): void {
  setHidden('card', card === null);
  setText('card-title', card?.title ?? '');
  setText('card-text', card?.text ?? '');
  const button = byId('card-action', HTMLButtonElement);
  setHidden(button, card?.action === undefined);
  setText(button, card?.action?.label ?? '');
  button.onclick = () => card?.action?.run();
}
