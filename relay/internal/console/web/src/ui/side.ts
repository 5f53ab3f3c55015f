// What stands beside the terminal: one panel at most.

import { byId, closeMenu, keepFocus, setHidden } from './dom.ts';

export interface SidePanel {
  opened(): void;
  closed(): void;
}

export class Side {
  #open: (() => void) | undefined; // closes the one that is open

  // leave moves the focus back to the terminal.
  constructor(private readonly leave: () => void) {}

  // add lets a panel be opened and closed: by the tool of that name, its close
  // button, Escape, and what it returns.
  add(name: string, panel: SidePanel): () => void {
    const element = byId(name);
    const button = byId(`tool-${name}`, HTMLButtonElement);
    const shut = () => {
      if (element.hidden) return;
      this.#open = undefined;
      setHidden(element, true);
      button.setAttribute('aria-pressed', 'false');
      panel.closed();
    };
    const close = () => {
      shut();
      this.leave();
    };
    const toggle = () => {
      if (!element.hidden) return close();
      this.#open?.();
      this.#open = shut;
      setHidden(element, false);
      button.setAttribute('aria-pressed', 'true');
      panel.opened();
    };
    setHidden(button, false);
    keepFocus(button);
    button.addEventListener('click', () => {
      closeMenu();
      toggle();
    });
    byId(`${name}-close`, HTMLButtonElement).addEventListener('click', close);
    element.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || event.defaultPrevented) return;
      event.preventDefault();
      event.stopPropagation();
      close();
    });
    return toggle;
  }
}
