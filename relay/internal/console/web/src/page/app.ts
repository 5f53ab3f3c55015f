// The page as a whole: its parts, and the events that concern them all.

import { Session, type Me, type Origins, type SessionInfo, type Turn } from '@fairlead/core';
import { callText } from '../agents/agents.ts';
import { AgentBar } from '../agents/bar.ts';
import { Approvals } from '../approvals/feed.ts';
import type { Terminals } from '../chat/elsewhere.ts';
import { EnvDialog } from '../env/dialog.ts';
import { Pages, pageOf } from '../plugins/pages.ts';
import { Recordings } from '../recordings/recordings.ts';
import { Keybar } from '../terminal/keybar.ts';
import { Pane } from '../terminal/pane.ts';
import { ask, hint } from '../ui/ask.ts';
import { byId, h } from '../ui/dom.ts';
import { forgetLink, otherSession, tab } from '../ui/storage.ts';
import { Actions } from './actions.ts';
import { card } from './card.ts';
import { validId } from './link.ts';
import { TerminalList } from './list.ts';
import { labels } from './model.ts';
import { Panels } from './panels.ts';
import { Panes } from './panes.ts';
import { ended, Presenter } from './present.ts';
import { Tools } from './tools.ts';
import { View } from './view.ts';

export class App {
  readonly #session: Session;
  readonly #list: TerminalList;
  readonly #panes: Panes;
  readonly #pages: Pages;
  readonly #actions: Actions;
  readonly #presenter: Presenter;
  readonly #view: View;
  readonly #keybar: Keybar;
  readonly #tools: Tools;
  readonly #agent: AgentBar;
  readonly #approvals: Approvals | undefined;
  readonly #panels: Panels;
  #ticker: number | undefined;

  constructor(
    token: string,
    private readonly me: Me,
    private readonly info: SessionInfo,
    origins: Origins,
  ) {
    this.#session = new Session({ id: info.id, token, origins });
    this.#list = new TerminalList(this.#session, () => this.#draw());
    this.#panes = new Panes((id) => this.#open(id));
    this.#pages = new Pages(this.#session, { may: this.#may('plugins'), changed: () => this.#draw() });
    this.#actions = new Actions(this.#session, { shown: () => this.#panes.shown, changed: () => this.#draw() });
    this.#presenter = new Presenter(this.#list, this.#panes, this.#pages, (capability) => this.#may(capability));
    this.#view = this.#makeView();
    this.#view.stage.prepend(this.#actions.search.element);
    this.#view.sessions(me.sessions.map(({ id, dashboard }) => ({ id, label: dashboard || id })), info.id);
    this.#keybar = new Keybar({
      type: (data) => this.#panes.shown?.screen.type(data),
      arrow: (final) => this.#panes.shown?.screen.arrow(final),
      paste: () => void this.#actions.paste(),
    });
    this.#tools = this.#makeTools();
    this.#agent = new AgentBar({
      start: (what) => void this.#actions.startAgent(what),
      pause: () => void this.#actions.steerAgent('pause'),
      resume: () => void this.#actions.steerAgent('resume'),
      stop: () => void this.#actions.stopAgent(),
      details: () => this.#panels.toggleAgent(),
    }, this.#may('shell'));
    if (this.#may('approve')) {
      this.#approvals = new Approvals(this.#session, {
        naming: { you: me.user.id, name: (id) => this.#panes.nameOf(id), terminal: (id) => this.#list.labels.get(id) },
        select: (id) => this.#select(id, true),
        converse: (id) => this.#panels.converse(id),
        focusTerminal: () => this.#focus(),
        changed: () => this.#draw(),
      });
    }
    this.#panels = new Panels(this.#session, info, me.user.id, {
      name: (id) => this.#panes.nameOf(id),
      leave: () => this.#focus(),
      asks: (ids, focus) => this.#approvals?.leave({ ids, focus }),
      terminals: this.#conversing(),
    });
  }

  #makeView(): View {
    return new View({
      select: (id) => this.#choose(id),
      create: () => void this.#create(),
      close: (id) => void this.#close(id),
      send: (message) => this.#actions.send(message),
      dismiss: (id) => {
        this.#presenter.dismiss(id);
        this.#draw();
      },
      retry: () => this.#panes.shown?.terminal.retry(),
      discard: () => this.#panes.shown?.discard(),
      interrupt: () => this.#panes.shown?.interrupt(),
      focusTerminal: () => this.#focus(),
      find: () => this.#actions.find(),
      readAloud: (on) => this.#panes.all.forEach((pane) => pane.screen.readAloud(on)),
      session: otherSession,
    });
  }

  #makeTools(): Tools {
    const env = new EnvDialog(this.#session, () => {
      const names = this.#list.labels;
      return this.#list.running.map(({ id }) => ({ id, label: names.get(id) ?? id }));
    });
    const recordings = new Recordings({
      list: () => this.#session.recordings(),
      fetch: (id) => this.#session.recording(id),
      label: ({ pty_id: id, command = '' }) => this.#list.labels.get(id) ?? labels([{ id, command, cols: 0, rows: 0, created_at: 0 }]).get(id) ?? id,
    });
    return new Tools(this.#actions, {
      recordings: () => void recordings.open(),
      env: this.#may('env') ? () => env.open() : undefined,
      approvals: this.#may('approve') ? () => this.#approvals?.open() : undefined,
    });
  }

  // text is what the shown terminal shows; all adds what has scrolled away.
  text(all = false): string {
    return this.#panes.shown?.screen.text(all) ?? '';
  }

  get webgl(): boolean {
    return this.#panes.shown?.screen.webgl ?? false;
  }

  // offerSignOut shows the way out to somebody who could sign in again.
  offerSignOut(): void {
    const button = byId('sign-out', HTMLButtonElement);
    button.hidden = false;
    button.addEventListener('click', () => void this.#actions.once(async () => {
      await this.#session.signOut();
      forgetLink();
    }));
  }

  // start shows the wanted terminal, or the first that still runs.
  async start(wanted: string | null): Promise<void> {
    document.body.classList.add('ready');
    await this.#list.readFirst(() => card({ title: 'The sandbox can’t be reached', text: 'Trying again by itself.' }));
    card(null);
    this.#approvals?.start();
    const converse = tab.get('converse');
    tab.set('converse', null);
    const first = this.#list.find(wanted ?? '') ?? this.#list.running[0] ?? this.#list.all[0];
    if (first === undefined) this.#empty();
    else this.#select(first.id, true);
    this.#pages.readAgain();
    if (validId(converse)) this.#panels.converse(converse);
    this.#listen();
  }

  #listen(): void {
    const terminals = () => this.#panes.all.map((pane) => pane.terminal);
    new ResizeObserver(() => this.#panes.shown?.layout(true)).observe(this.#view.hosts);
    window.addEventListener('online', () => terminals().forEach((terminal) => terminal.online()));
    // A page that is left may be kept for the way back, with its sockets: it would
    // go on giving terminals its size.
    window.addEventListener('pagehide', () => terminals().forEach((terminal) => terminal.stop()));
    window.addEventListener('pageshow', ({ persisted }) => persisted && location.reload());
    window.addEventListener('focus', () => this.#returned());
    document.addEventListener('visibilitychange', () => document.hidden || this.#returned());
  }

  // returned: the person looks at the page again. Timers may have slept.
  #returned(): void {
    this.#presenter.called = '';
    for (const { terminal } of this.#panes.all) {
      if (terminal.connection.phase.name === 'lost') terminal.retry();
      terminal.look();
    }
    this.#panes.shown?.layout(true);
    this.#list.readAgain();
    this.#pages.readAgain();
  }

  #may(capability: string): boolean {
    return this.info.capabilities.includes(capability);
  }

  #focus(): void {
    this.#panes.shown?.screen.focus();
  }

  // choose shows what a tab stands for.
  #choose(tab: string): void {
    const page = pageOf(tab);
    if (page === '') return this.#select(tab, false);
    card(null);
    this.#actions.search.close(false);
    this.#panes.hide();
    this.#pages.show(page);
    this.#draw();
  }

  #select(id: string, focus: boolean): void {
    card(null);
    this.#actions.search.close(false);
    this.#pages.hide();
    this.#panes.show(id);
    tab.set('pty', id);
    if (focus) this.#focus();
    this.#draw();
  }

  #open(id: string): Pane {
    const host = h('div', { class: 'host', 'data-pty-id': id });
    this.#view.hosts.append(host);
    const { search } = this.#actions;
    const pane: Pane = new Pane(this.#session, { id, you: this.me.user, host, followsSize: tab.get('size') === 'follow' }, {
      changed: () => this.#draw(),
      stopped: (turn) => this.#stopped(pane, turn),
      skipped: (part) => this.#actions.showEarlier(part),
      leave: () => this.#approvals?.focus() || this.#view.leave(),
      find: () => this.#actions.find(),
      found: (index, count) => {
        if (search.target === pane.screen) search.found(index, count);
      },
      size: (step) => this.#actions.size(step),
      pause: this.#may('agent') ? () => void this.#actions.steerAgent('pause') : undefined,
      relist: () => this.#list.readAgain(),
      news: () => this.#list.news(this.#panes.shown?.control.count ?? 0, () => this.#pages.readAgain()),
      modify: (data) => this.#keybar.modify(data),
    });
    return pane;
  }

  // stopped: an agent has finished a turn, which nobody may have seen.
  #stopped(pane: Pane, turn: Turn): void {
    if (document.hidden) this.#presenter.called = callText(turn);
    if (pane.shown) return;
    const where = this.#list.labels.get(pane.id) ?? 'another terminal';
    hint(`${callText(turn)} in ${where}`, { label: 'Show', run: () => this.#select(pane.id, true) });
  }

  async #create(conversation?: string): Promise<void> {
    await this.#actions.once(async () => {
      const id = await this.#session.create(conversation);
      await this.#list.read();
      if (conversation !== undefined) this.#panels.aside();
      this.#select(id, true);
    });
  }

  // conversing are the terminals where conversations go on.
  #conversing(): Terminals {
    return {
      may: this.#may('shell'),
      label: (id) => this.#list.labels.get(id),
      show: (id) => {
        this.#panels.aside();
        this.#select(id, true);
      },
      continue: (conversation) => this.#create(conversation),
      close: (id) => this.#close(id, {
        title: 'Back to the chat?', text: 'The terminal is closed, for everybody. What the coding agent is doing there is ended; what was said stays.', yes: 'Back to chat',
      }),
    };
  }

  async #close(id: string, words?: { title: string; text: string; yes: string }): Promise<void> {
    const label = this.#list.labels.get(id) ?? 'terminal';
    const { title, text, yes } = words ?? { title: `Close “${label}”?`, text: 'The programs that run in it are ended, for everybody.', yes: 'Close terminal' };
    if (!ended(this.#list.find(id), this.#panes.get(id)) && !(await ask(title, text, yes))) return;
    await this.#actions.once(async () => {
      await this.#session.close(id);
      await this.#list.read();
      if (!this.#panes.drop(id)) return;
      const next = this.#list.running[0] ?? this.#list.all[0];
      if (next === undefined) this.#empty();
      else this.#select(next.id, true);
    });
  }

  #empty(): void {
    this.#list.lookOut(() => this.#panes.shown === undefined && this.#pages.shown === '', (id) => this.#select(id, false));
    card({
      title: 'No terminal is open',
      text: this.#may('shell') ? 'Open one: everybody in this session can watch it.' : 'Wait until somebody opens one.',
      action: this.#may('shell')
        ? { label: 'New terminal', run: () => void this.#create() }
        : { label: 'Look again', run: () => location.reload() },
    });
    this.#draw();
  }

  #draw(): void {
    const model = this.#presenter.model(this.#approvals?.asking ?? '');
    const pane = this.#panes.shown;
    this.#view.draw(model);
    this.#tools.draw(model.tools);
    this.#agent.draw(model.agent, model.live);
    this.#panels.draw(pane, this.#list.labels, model.agent);
    this.#approvals?.draw();
    // Countdowns need a draw now and then, everything else draws when it changes.
    const counting = (pane?.terminal.connection.lostAt ?? null) !== null || model.control.kind === 'away';
    clearTimeout(this.#ticker);
    if (counting) this.#ticker = window.setTimeout(() => this.#draw(), 250);
  }
}
