// Keys that a phone's keyboard lacks.

import { byId, h } from './dom.ts';

export interface Keys {
  type(data: string): void;
  arrow(final: string): void;
  paste(): void;
}

const control = (data: string): string => {
  const code = data.toUpperCase().charCodeAt(0);
  if (code >= 0x40 && code <= 0x5f) return String.fromCharCode(code - 0x40);
  return data === ' ' ? '\0' : data;
};

export class Keybar {
  readonly #ctrl: HTMLButtonElement;
  #armed = false;

  constructor(keys: Keys) {
    const bar = byId('keybar', HTMLElement);
    this.#ctrl = this.#key('Ctrl', 'Control, for the next key', () => this.#arm(!this.#armed));
    this.#ctrl.setAttribute('aria-pressed', 'false');
    bar.append(
      this.#key('Esc', 'Escape', () => keys.type('\x1b')),
      this.#key('Tab', 'Tab', () => keys.type('\t')),
      this.#ctrl,
      this.#key('←', 'Left', () => keys.arrow('D')),
      this.#key('↑', 'Up', () => keys.arrow('A')),
      this.#key('↓', 'Down', () => keys.arrow('B')),
      this.#key('→', 'Right', () => keys.arrow('C')),
      this.#key('Paste', 'Paste', () => keys.paste()),
    );
  }

  // modify applies Ctrl, when it was pressed, to one typed character.
  modify(data: string): string {
    if (!this.#armed || data.length !== 1) return data;
    this.#arm(false);
    return control(data);
  }

  #arm(on: boolean): void {
    this.#armed = on;
    this.#ctrl.setAttribute('aria-pressed', String(on));
  }

  #key(label: string, name: string, press: () => void): HTMLButtonElement {
    const button = h('button', { type: 'button', 'aria-label': name }, label);
    // The keyboard goes away when the terminal loses the focus.
    button.addEventListener('pointerdown', (event) => event.preventDefault());
    button.addEventListener('click', press);
    return button;
  }
}
