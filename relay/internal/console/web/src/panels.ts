// What can stand beside the terminal: its agent, the sandbox's files and its
// browser.

import type { Control, Session, SessionInfo } from '@fairlead/core';
import { AgentPanel } from './agentpanel.ts';
import { BrowserPanel } from './browserpanel.ts';
import { Files } from './files.ts';
import type { AgentView } from './model.ts';
import { Side } from './side.ts';

export interface PanelHooks {
  you: string;
  ask(title: string, text: string, yes: string): Promise<boolean>;
  hint(text: string): void;
  leave(): void; // the focus goes to the terminal
}

export class Panels {
  readonly #agent: AgentPanel;

  constructor(session: Session, { capabilities, dashboard }: SessionInfo, { you, ask, hint, leave }: PanelHooks) {
    const side = new Side(leave);
    this.#agent = new AgentPanel(session, side, { you, dashboard, mayUseTools: capabilities.includes('mcp'), confirm: ask });
    new BrowserPanel(session, side);
    if (capabilities.includes('files.read')) new Files(session, side, { mayWrite: capabilities.includes('files.write'), ask, hint });
  }

  // draw shows how the terminal in front stands.
  draw(pane: { id: string; control: Control } | undefined, labels: ReadonlyMap<string, string>, agent: AgentView): void {
    if (pane === undefined) return this.#agent.draw(undefined);
    const { id, control } = pane;
    this.#agent.draw({ pty: id, label: labels.get(id) ?? 'terminal', agent, turn: control.lastTurn, tools: control.tools });
  }

  toggleAgent(): void {
    this.#agent.toggle();
  }
}
