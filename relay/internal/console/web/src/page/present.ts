// Puts together what the page shows, and keeps what nobody else does: the requests
// that the person has put off, and what an agent did while nobody looked.

import { hasEnded, type TerminalInfo } from '@fairlead/core';
import { terminalEgress } from '../approvals/egress.ts';
import type { Pane } from '../terminal/pane.ts';
import { noShare, shareOf } from '../terminal/share.ts';
import { font } from '../ui/theme.ts';
import type { TerminalList } from './list.ts';
import { agentOf, bannerOf, controlOf, hintOf, noAgent, noControl, overdue, peopleOf, progressOf, startsLater, statusOf, titleOf, type Model, type Tab } from './model.ts';
import { pageTab, type Pages } from '../plugins/pages.ts';
import type { Panes } from './panes.ts';

// ended reports whether a terminal's program is over, as the list or its own
// connection tells.
export const ended = (info: TerminalInfo | undefined, pane: Pane | undefined): boolean => Boolean(info?.exited) || (pane !== undefined && hasEnded(pane.terminal.connection));

export class Presenter {
  readonly #dismissed = new Set<string>(); // requests that the person put off: pane and user
  called = ''; // what an agent did while nobody looked

  constructor(
    private readonly list: TerminalList,
    private readonly panes: Panes,
    private readonly pages: Pages,
    private readonly may: (capability: string) => boolean,
  ) {}

  dismiss(user: string): void {
    this.#dismissed.add(`${this.panes.shown?.id} ${user}`);
  }

  // model is what to show now. approval is the host that waits for an approval, ''
  // where none does.
  model(approval: string): Model {
    const pane = this.panes.shown;
    const names = this.list.labels;
    const tabs = this.#tabs(names);
    const mayCreate = this.may('shell');
    if (pane === undefined) {
      const page = this.pages.shown;
      const status: Model['status'] = page === '' ? nothing.status : { tone: 'idle', text: 'A plugin’s page' };
      return { ...nothing, status, tabs, mayCreate, tools: { ...nothing.tools, typeSize: font().base }, title: titleOf(page || 'terminal', approval, undefined, this.called) };
    }
    const now = Date.now();
    const { terminal, control } = pane;
    const state = terminal.connection;
    const over = hasEnded(state);
    // A connection that is back at once was never away.
    const waits = this.list.find(pane.id)?.waiting === true;
    const there = state.everAttached && state.phase.name !== 'over' && !overdue(state, now);
    const live = there && state.waiting === null && !over;
    const known = !over && state.everAttached;
    const requests = pane.mine && live ? this.#requests(pane) : [];
    return {
      status: waits && statusOf(state).tone === 'good' ? { tone: 'idle', text: 'Waits for a key' } : statusOf(state),
      tabs,
      mayCreate,
      people: peopleOf(control, live),
      control: known ? controlOf(control, live, now) : noControl,
      agent: known ? agentOf(control, this.may('agent')) : noAgent,
      requests,
      banner: bannerOf(state, now, mayCreate, terminal.pending),
      live,
      stale: !live && !over,
      tools: {
        earlier: pane.earlier !== null,
        mayRecord: this.may('record') && !over,
        recording: terminal.facts.recording !== '',
        share: over ? noShare : shareOf(pane.id, terminal.facts.shared, this.list.all, names, control.canControl),
        typeSize: font().base,
      },
      held: terminal.facts.held && pane.mine && live,
      progress: progressOf(terminal.progress),
      detail: this.#detail(pane),
      title: titleOf(names.get(pane.id) ?? 'terminal', approval, requests[0]?.name, this.called),
    };
  }

  #tabs(names: Map<string, string>): Tab[] {
    const terminals = this.list.all.map((info): Tab => {
      const pane = this.panes.get(info.id);
      return {
        id: info.id,
        label: names.get(info.id) ?? info.id,
        hint: hintOf(info),
        active: pane !== undefined && pane === this.panes.shown,
        ended: ended(info, pane),
        unseen: pane?.unseen ?? false,
        waiting: info.waiting === true && !ended(info, pane),
        mine: pane?.mine ?? false,
        egress: terminalEgress(info.egress),
        page: false,
      };
    });
    return [...terminals, ...this.pages.all.map((plugin): Tab => ({
      id: pageTab(plugin.name), label: plugin.name, hint: `Page of a program in ${names.get(plugin.pty_id) ?? 'a terminal'}`,
      active: plugin.name === this.pages.shown, ended: false, unseen: false, waiting: false, mine: false, egress: '', page: true,
    }))];
  }

  #requests({ id, control }: Pane): Model['requests'] {
    for (const key of this.#dismissed) {
      const [pane, user] = key.split(' ');
      if (pane === id && !control.requests.includes(user ?? '')) this.#dismissed.delete(key);
    }
    return control.requests
      .filter((user) => !this.#dismissed.has(`${id} ${user}`))
      .map((user) => ({ id: user, name: control.names.get(user) ?? user }));
  }

  #detail({ id, screen, terminal: { mine, leads } }: Pane): string {
    const scale = Math.round(screen.scale * 100);
    const elsewhere = mine && !leads ? ['sized by your other window'] : [];
    const egress = terminalEgress(this.list.find(id)?.egress);
    return [`${screen.cols} × ${screen.rows}`, ...(scale === 100 ? [] : [`${scale} %`]), ...elsewhere, ...(egress === '' ? [] : [egress]), ...(this.list.find(id)?.waiting === true ? [startsLater] : [])].join(' · ');
  }
}

// nothing is what is shown of no terminal.
const nothing: Model = {
  status: { tone: 'idle', text: 'No terminal' },
  tabs: [],
  mayCreate: false,
  people: { count: 0, list: [] },
  control: noControl,
  agent: noAgent,
  requests: [],
  banner: null,
  live: false,
  stale: true,
  tools: { earlier: false, mayRecord: false, recording: false, share: noShare, typeSize: 0 },
  held: false,
  progress: null,
  detail: '',
  title: '',
};
