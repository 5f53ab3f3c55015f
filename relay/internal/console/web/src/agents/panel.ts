// The panel about a terminal's agent: how it stands, what it said last, which
// tools its programs have, and which accounts they may use.

import type { Session, Turn } from '@fairlead/core';
import { IntegrationsAPI } from '../integrations/api.ts';
import { AttachDialog } from '../integrations/attach.ts';
import { mayChange, rowsOf, type Attachment, type Member, type Mine, type Row } from '../integrations/integrations.ts';
import { ask } from '../ui/ask.ts';
import { byId, h, keyed, setAttribute, setHidden, setNamed, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import type { Side, SidePanel } from '../ui/side.ts';
import { visible } from '../ui/visible.ts';
import { messageText, turnText, type AgentView } from './agents.ts';

// What the panel says about the terminal that is shown.
export interface Subject {
  pty: string;
  label: string; // of the terminal
  agent: AgentView;
  turn: Turn | null;
  tools: number | null; // null: not known yet
}

export interface AgentPanelOptions {
  you: string;
  dashboard: string; // '' if none
  mayUseTools: boolean; // and so ask which there are
}

interface Tool {
  name: string;
  description?: string;
}

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
const dayMs = 24 * 3600_000;

const whenText = (at: number): string => (Math.abs(Date.now() - at) < dayMs / 2 ? clock : day).format(at);

export class AgentPanel implements SidePanel {
  readonly #panel = byId('agent-panel');
  readonly #note = byId('integrations-note');
  readonly #api: IntegrationsAPI;
  readonly #attach: AttachDialog;
  readonly toggle: () => void;
  #subject: Subject | undefined;
  #mine: Mine | null = null;
  #attachments: Attachment[] = [];
  #members: Member[] = [];
  #tools: { pty: string; told: number | null; list: Tool[] } | undefined;
  #turn = 0; // answers to earlier requests are ignored

  constructor(private readonly session: Session, side: Side, private readonly options: AgentPanelOptions) {
    this.#api = new IntegrationsAPI(session, options.dashboard);
    this.#attach = new AttachDialog(this.#api, () => this.#refresh());
    this.toggle = side.add('agent-panel', this);
    setHidden('integrations', options.dashboard === '');
    // Whoever has connected an account comes back from another window.
    window.addEventListener('focus', () => this.#panel.hidden || void this.#refresh());
  }

  opened(): void {
    if (this.#tools !== undefined) this.#tools.told = -1; // it may have changed unseen
    this.#draw();
    this.#read();
    byId('agent-panel-close', HTMLButtonElement).focus();
  }

  closed(): void {
    this.#turn++;
  }

  // draw shows how the terminal in front stands, where the panel is open.
  draw(subject: Subject | undefined): void {
    const before = this.#subject;
    this.#subject = subject;
    if (this.#panel.hidden) return;
    this.#draw();
    if (before?.pty !== subject?.pty || before?.tools !== subject?.tools) this.#read();
  }

  #draw(): void {
    const { agent, turn, label } = this.#subject ?? { agent: null, turn: null, label: '' };
    setText('agent-panel-where', label);
    setAttribute('agent-now', 'data-state', agent?.state ?? 'stopped');
    const none = agent === null || agent.text === '';
    setNamed('agent-now-text', none ? '' : agent.name, none ? 'No agent is at work here' : agent.text);
    setText('agent-now-detail', agent?.detail ?? '');
    this.#drawTurn(turn);
    this.#drawTools();
    this.#drawRows();
  }

  #drawTurn(turn: Turn | null): void {
    setHidden('agent-turn', turn === null);
    if (turn === null) return;
    const text = messageText(turn);
    const time = byId('agent-turn-time', HTMLTimeElement);
    setAttribute(time, 'datetime', new Date(turn.timestamp).toISOString());
    setText(time, whenText(turn.timestamp));
    setText('agent-turn-reason', turnText(turn));
    setText('agent-message', text === '' ? 'It said nothing.' : text);
  }

  #drawTools(): void {
    const known = this.#tools !== undefined && this.#tools.pty === this.#subject?.pty ? this.#tools.list : null;
    const count = known?.length ?? this.#subject?.tools ?? null;
    setHidden('agent-tools', count === null);
    if (count === null) return;
    setText('agent-tools-count', `Tools: ${count}`);
    const box = byId('agent-tools-all', HTMLDetailsElement);
    setHidden(box, known === null || known.length === 0);
    keyed(byId('agent-tools-list'), known ?? [], (tool) => tool.name, () => h('li', {}, h('b', { class: 'mono' }), h('span', { class: 'fine' })), (element, { name, description }) => {
      setText(element.firstElementChild ?? element, visible(name));
      setText(element.lastElementChild ?? element, visible((description ?? '').split('\n')[0] ?? ''));
    });
  }

  #drawRows(): void {
    const at = { session: this.session.id, pty: this.#subject?.pty ?? '', you: this.options.you, members: this.#members };
    const rows = at.pty === '' ? [] : rowsOf(this.#mine, this.#attachments, at);
    const button = (act: string, label: string, { provider }: Row) => h('button', { class: 'button small', type: 'button', 'data-act': act, 'data-testid': `btn-${act}-${provider}` }, label);
    keyed(byId('integrations-list'), rows, (row) => row.provider, (row) => {
      const element = h('li', { class: 'integration', 'data-testid': `integration-${row.provider}` },
        h('span', { class: 'who' }, h('b', {}), h('span', { class: 'fine' })), button('attach', 'Attach', row), button('change', 'Change', row), button('detach', 'Detach', row));
      element.addEventListener('click', (event) => {
        const act = event.target instanceof HTMLElement ? event.target.dataset['act'] : undefined;
        if (act !== undefined) this.#act(act, row.provider);
      });
      return element;
    }, (element, row) => {
      setAttribute(element, 'data-tone', row.tone);
      const [who, ...buttons] = [...element.children] as HTMLElement[];
      setText(who?.firstElementChild ?? element, row.label);
      setText(who?.lastElementChild ?? element, row.detail);
      for (const each of buttons) {
        setHidden(each, !row[each.dataset['act'] as 'attach' | 'change' | 'detach']);
        setAttribute(each, 'aria-label', `${each.textContent ?? ''} ${row.label}`);
      }
    });
    setText('integrations-none', mayChange(this.#members, this.options.you) ? 'No service has been set up to attach accounts of.' : 'None is attached.');
    setHidden('integrations-none', rows.length > 0 || this.#note.textContent !== '');
  }

  #act(act: string, provider: string): void {
    const { pty, label } = this.#subject ?? {};
    const attachment = this.#attachments.find((a) => a.pty_id === pty && a.session_id === this.session.id && a.provider === provider);
    if (pty === undefined || label === undefined) return;
    if (act === 'detach') void this.#detach(pty, label, provider, attachment);
    else this.#attach.open({ pty, label, provider, attachment, accounts: this.#mine?.accounts ?? [] });
  }

  async #detach(pty: string, label: string, provider: string, attachment: Attachment | undefined): Promise<void> {
    const text = `Programs in ${label} can’t use ${visible(attachment?.account_name ?? 'it')} any more, from now on.`;
    if (!(await ask('Detach this account?', text, 'Detach'))) return;
    try {
      await this.#api.detach(pty, provider);
      await this.#refresh();
    } catch (error) {
      setText(this.#note, messageOf(error));
    }
  }

  // read requests what no event reports.
  #read(): void {
    void this.#readTools();
    void this.#refresh();
  }

  async #readTools(): Promise<void> {
    const { pty, tools } = this.#subject ?? {};
    if (!this.options.mayUseTools || pty === undefined || tools === undefined) return;
    if (this.#tools?.pty === pty && this.#tools.told === tools) return;
    const asked = { pty, told: tools, list: this.#tools?.pty === pty ? this.#tools.list : [] };
    try {
      asked.list = (await this.session.get<{ tools: Tool[] | null }>(`/mcp/tools?${new URLSearchParams({ pty_id: pty })}`)).tools ?? [];
    } catch {
      return; // the known number suffices
    }
    if (this.#subject?.pty !== pty) return;
    this.#tools = asked;
    this.#drawTools();
  }

  async #refresh(): Promise<Mine | null> {
    if (this.options.dashboard === '') return null;
    const turn = ++this.#turn;
    try {
      const [members, attachments, mine] = await Promise.all([this.#api.members(), this.#api.attachments(), this.#api.mine()]);
      if (turn !== this.#turn) return mine;
      [this.#members, this.#attachments, this.#mine] = [members, attachments, mine];
      setText(this.#note, '');
    } catch (error) {
      if (turn === this.#turn) setText(this.#note, messageOf(error));
    }
    this.#drawRows();
    return this.#mine;
  }
}
