// What can stand beside the terminal: its agent, conversations with coding agents,
// the sandbox's files and its browser, whose logins that has, and tabs of people's own.

import type { Control, Session, SessionInfo } from '@fairlead/core';
import type { AgentView } from '../agents/agents.ts';
import { AgentPanel } from '../agents/panel.ts';
import { BrowserPanel } from '../browser/panel.ts';
import { Chat } from '../chat/chat.ts';
import type { Terminals } from '../chat/elsewhere.ts';
import { Files } from '../files/panel.ts';
import { MyTabs } from '../mytabs/panel.ts';
import { Sync } from '../sync/sync.ts';
import { Side } from '../ui/side.ts';

export interface PanelHooks {
  name(id: string): string; // of a person
  leave(): void; // moves the focus to the terminal
  asks(questions: ReadonlySet<string>, focus: () => boolean): void; // these the chat shows
  terminals: Terminals;
}

export class Panels {
  readonly #agent: AgentPanel;
  readonly #chat: Chat;

  constructor(session: Session, { capabilities, dashboard }: SessionInfo, you: string, hooks: PanelHooks) {
    const side = new Side(() => hooks.leave());
    this.#agent = new AgentPanel(session, side, { you, dashboard, mayUseTools: capabilities.includes('mcp') });
    new BrowserPanel(session, side);
    new Sync(session, side, { you, dashboard, mayChange: capabilities.includes('sync'), name: hooks.name });
    new MyTabs(session, side, { you, mayUse: capabilities.includes('mcp') });
    this.#chat = new Chat(session, side, { ...hooks, you, mayTalk: capabilities.includes('chat'), mayApprove: capabilities.includes('approve') });
    if (capabilities.includes('files.read')) new Files(session, side, capabilities.includes('files.write'));
  }

  // draw shows how the terminal in front stands, and what terminals are called.
  draw(pane: { id: string; control: Control } | undefined, labels: ReadonlyMap<string, string>, agent: AgentView): void {
    this.#chat.renamed();
    if (pane === undefined) return this.#agent.draw(undefined);
    const { id, control } = pane;
    this.#agent.draw({ pty: id, label: labels.get(id) ?? 'terminal', agent, turn: control.lastTurn, tools: control.tools });
  }

  converse(conversation: string): void {
    this.#chat.open(conversation);
  }

  // aside makes room for a terminal.
  aside(): void {
    this.#chat.aside();
  }

  toggleAgent(): void {
    this.#agent.toggle();
  }
}
