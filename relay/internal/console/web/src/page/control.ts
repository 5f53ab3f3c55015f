// Who has control, with the buttons to take, request and give it; and the requests
// of others.

import type { ClientMessage } from '@fairlead/core';
import { byId, h, hue, icon, initials, keyed, setAttribute, setHidden, setNamed, setText } from '../ui/dom.ts';
import type { ControlView, Model } from './model.ts';

export interface ControlActions {
  send(message: ClientMessage): void;
  dismiss(user: string): void;
  focusTerminal(): void;
}

const messages = { take: 'take_control', request: 'request_control', cancel: 'cancel_request', release: 'revoke_control' } as const;

export class ControlBar {
  readonly #buttons = {
    take: byId('take', HTMLButtonElement),
    request: byId('request', HTMLButtonElement),
    cancel: byId('cancel', HTMLButtonElement),
    release: byId('release', HTMLButtonElement),
  };
  readonly #takeBack = byId('take-back', HTMLButtonElement);

  constructor(private readonly actions: ControlActions) {
    for (const name of ['take', 'request', 'cancel', 'release'] as const) {
      this.#buttons[name].addEventListener('click', () => actions.send({ type: messages[name] }));
    }
    this.#takeBack.addEventListener('click', () => actions.send({ type: 'take_back' }));
  }

  // leave moves the focus from the terminal to what can be done with it.
  leave(): void {
    const button = Object.values(this.#buttons).find((b) => !b.hidden && !b.disabled);
    (button ?? document.querySelector<HTMLElement>('#tabs [aria-selected="true"]') ?? byId('help-open')).focus();
  }

  draw(control: ControlView): void {
    const box = byId('control');
    const focused = [...Object.values(this.#buttons), this.#takeBack].find((b) => b === document.activeElement);
    setAttribute(box, 'data-kind', control.kind);
    setAttribute(document.body, 'data-control', control.kind);
    const holder = byId('controller');
    setNamed(holder, control.name, control.text);
    setText('controller-detail', control.detail);
    setAttribute(holder, 'data-user-id', control.id);
    setHidden('view-only', !control.viewOnly);
    for (const [name, button] of Object.entries(this.#buttons)) {
      setHidden(button, control.action !== name);
      button.disabled = !control.enabled;
    }
    setHidden(this.#takeBack, !control.takeBack);
    this.#takeBack.disabled = !control.enabled;
    if (focused?.hidden !== true) return;
    if (control.kind === 'you') this.actions.focusTerminal();
    else this.leave();
  }

  drawRequests(requests: Model['requests']): void {
    keyed(byId('requests'), requests, (r) => r.id,
      ({ id, name }) => {
        const face = h('span', { class: 'face', 'aria-hidden': 'true' }, initials(name));
        face.style.setProperty('--hue', hue(id));
        const grant = h('button', { class: 'button primary small', type: 'button', 'data-testid': `btn-grant-${id}` }, 'Give control');
        grant.addEventListener('click', () => this.actions.send({ type: 'grant_control', to: id }));
        const later = h('button', { class: 'plain', type: 'button', 'aria-label': `Not now, ${name}`, title: 'Not now' }, icon('close'));
        later.addEventListener('click', () => this.actions.dismiss(id));
        return h('div', { class: 'request' }, face, h('span', { class: 'words' }), grant, later);
      },
      (element, { name }) => {
        const words = element.children[1] ?? element;
        if (words.textContent !== `${name} asks for control`) words.replaceChildren(h('b', {}, name), ' asks for control');
      });
  }
}
