// The agent's state below the terminal, with what can be done about it; and the
// choice of which one to start.

import type { AgentStart } from '@fairlead/core';
import { byId, closeMenu, h, keepFocus, setAttribute, setHidden, setNamed, setText } from '../ui/dom.ts';
import { knownAgents, programOf, type AgentView } from './agents.ts';

const menuPx = 252; // the menu and its distance from the window's edge

export interface AgentActions {
  start(what: AgentStart): void;
  pause(): void;
  resume(): void;
  stop(): void;
  details(): void;
}

export class AgentBar {
  readonly #bar = byId('agent');
  readonly #start = byId('agent-start', HTMLButtonElement);
  readonly #menu = byId('agents');
  readonly #buttons = {
    pause: byId('agent-pause', HTMLButtonElement),
    resume: byId('agent-resume', HTMLButtonElement),
    stop: byId('agent-stop', HTMLButtonElement),
    details: byId('agent-details', HTMLButtonElement),
  };

  // custom says whether any command may be started.
  constructor(private readonly actions: AgentActions, custom: boolean) {
    for (const name of ['pause', 'resume', 'stop', 'details'] as const) {
      // The terminal keeps the focus.
      keepFocus(this.#buttons[name]);
      this.#buttons[name].addEventListener('click', () => actions[name]());
    }
    this.#start.addEventListener('click', () => this.#open());
    byId('custom-cancel', HTMLButtonElement).addEventListener('click', () => byId('custom', HTMLDialogElement).close('no'));
    const item = (id: string, label: string, run: () => void) => {
      const button = h('button', { class: 'item', type: 'button', 'data-testid': `agent-${id}` }, label);
      button.addEventListener('click', () => {
        this.#menu.hidePopover();
        run();
      });
      this.#menu.append(button);
    };
    for (const { name, label } of knownAgents) item(name, label, () => actions.start({ name }));
    if (custom) item('custom', 'Another command…', () => this.#custom());
  }

  draw(agent: AgentView, enabled: boolean): void {
    setAttribute(this.#bar, 'data-state', agent.state);
    setHidden(this.#bar, agent.text === '');
    setNamed('agent-text', agent.name, agent.text);
    setText('agent-detail', agent.detail);
    for (const [name, button] of Object.entries(this.#buttons)) {
      setHidden(button, !agent[name as 'pause' | 'resume' | 'stop' | 'details']);
      button.disabled = !enabled && name !== 'details';
    }
    setHidden(this.#start, !agent.start);
    this.#start.disabled = !enabled;
  }

  // open shows the choice above the button, or where a phone's menu was.
  #open(): void {
    closeMenu();
    const at = Math.min(this.#start.getBoundingClientRect().left, window.innerWidth - menuPx);
    this.#menu.style.setProperty('--at', `${at}px`);
    this.#menu.showPopover();
    this.#menu.querySelector<HTMLElement>('.item')?.focus();
  }

  #custom(): void {
    const dialog = byId('custom', HTMLDialogElement);
    const field = byId('custom-command', HTMLInputElement);
    dialog.returnValue = 'no';
    dialog.showModal();
    field.focus();
    dialog.addEventListener('close', () => {
      const command = field.value.trim();
      if (dialog.returnValue !== 'yes' || command === '') return;
      this.actions.start({ name: programOf(command), command });
    }, { once: true });
  }
}
