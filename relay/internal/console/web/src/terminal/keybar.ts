// Keys that a phone's keyboard lacks.

import { byId, h, keepFocus } from '../ui/dom.ts';

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
    const bar = byId('keybar');
    this.#ctrl = this.#key('Ctrl', 'Ctrl, for the next key', () => this.#arm(!this.#armed));
    this.#ctrl.setAttribute('aria-pressed', 'false');
    const send = (label: string, name: string, data: string) => this.#key(label, name, () => keys.type(data));
    const arrow = (label: string, name: string, final: string) => this.#key(label, name, () => keys.arrow(final));
    bar.append(
      send('Esc', 'Esc', '\x1b'),
      send('|', 'Pipe', '|'),
      send('/', 'Slash', '/'),
      send('-', 'Minus', '-'),
      send('~', 'Tilde', '~'),
      arrow('↑', 'Up', 'A'),
      send('PgUp', 'PgUp: page up', '\x1b[5~'),
      this.#ctrl,
      send('Tab', 'Tab', '\t'),
      this.#key('Paste', 'Paste', () => keys.paste()),
      arrow('←', 'Left', 'D'),
      arrow('→', 'Right', 'C'),
      arrow('↓', 'Down', 'B'),
      send('PgDn', 'PgDn: page down', '\x1b[6~'),
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
    keepFocus(button);
    button.addEventListener('click', press);
    return button;
  }
}
