// The Terminal tab: the screen, and the card that covers it while nothing runs.

import { byId, setHidden, setText } from '@fairlead/console/ui/dom.ts';
import { visible } from '@fairlead/console/ui/visible.ts';
import type { State } from './machine.ts';

interface Card {
  title: string;
  text: string;
  button?: string;
}

const install = 'Nothing was started. Install Claude Code in the sandbox (docs.anthropic.com/en/docs/claude-code), then try again.';

// card is what covers the screen; undefined: nothing does.
export function card(state: State): Card | undefined {
  switch (state.name) {
    case 'idle':
      return { title: 'Press any key', text: state.note === '' ? 'Claude Code starts in the sandbox when you do. Until then nothing runs there.' : visible(state.note), button: 'Start Claude Code' };
    case 'starting':
      return { title: 'Starting', text: 'The sandbox is asked for a terminal.' };
    case 'ended':
      return { title: 'Session ended', text: visible(state.note), button: 'Start a new one' };
    case 'absent':
      return { title: 'Claude Code is not there', text: install, button: 'Try again' };
    default:
      return undefined;
  }
}

export function draw(state: State): void {
  const shown = card(state);
  setHidden('card', shown === undefined);
  setText('card-title', shown?.title ?? '');
  setText('card-text', shown?.text ?? '');
  setHidden('card-button', shown?.button === undefined);
  setText('card-button', shown?.button ?? '');
  setHidden('lost', state.name !== 'lost');
  byId('terminal').dataset.state = state.name;
}

// A key that says that somebody wants to begin, and is nobody's shortcut.
export const begins = (event: KeyboardEvent): boolean =>
  !['Shift', 'Control', 'Alt', 'Meta', 'CapsLock', 'Tab', 'Escape', 'F6', 'AltGraph'].includes(event.key) && !event.ctrlKey && !event.metaKey && !event.altKey && !event.isComposing;
