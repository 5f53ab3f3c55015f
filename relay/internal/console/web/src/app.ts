// The page as a whole: whose link it is, which terminals there are, which one
// is shown, and what the buttons do.

import { ApiError, backoff, closedToOthers, hasEnded, nobody, Session, Unsettled, type ClientMessage, type LogPart, type Me, type Origins, type SessionInfo, type TerminalInfo, type Turn } from '@fairlead/core';
import { nameOf } from './words.ts';
import { AgentBar, type Start } from './agentbar.ts';
import { agentLabel, callText, installOf } from './agents.ts';
import { Approvals } from './approvalsfeed.ts';
import { copy } from './clipboard.ts';
import { byId, h } from './dom.ts';
import { Earlier } from './earlier.ts';
import { terminalEgress } from './egress.ts';
import { EnvDialog } from './envdialog.ts';
import { Keybar } from './keybar.ts';
import { agentOf, bannerOf, controlOf, labels, noAgent, noControl, overdue, peopleOf, progressOf, statusOf, titleOf, type Model } from './model.ts';
import { Pane } from './pane.ts';
import { Panels } from './panels.ts';
import { Recordings } from './recordings.ts';
import { SearchBar } from './search.ts';
import { noShare, shareOf, warning } from './share.ts';
import { forgetLink, otherSession, tab } from './storage.ts';
import { font, touch } from './theme.ts';
import { Tools } from './tools.ts';
import { choose, chosen, resized, type SizeStep } from './typesize.ts';
import { View, type HintAction } from './view.ts';

// Everybody who watches hears of a new terminal at once. So many of them ask for
// the list over a moment that grows with their number.
const newsPerViewerMs = 2;
const newsMostMs = 5_000;
// How often a page without a terminal, which nobody tells, looks for one.
const emptyMs = 3_000;

// Terminals that stay connected while another is shown.
const mostOpen = 8;

export class App {
  readonly #view: View;
  readonly #session: Session;
  readonly #keybar: Keybar;
  readonly #search = new SearchBar();
  readonly #tools: Tools;
  readonly #agent: AgentBar;
  readonly #earlier = new Earlier();
  readonly #recordings: Recordings;
  readonly #approvals: Approvals | undefined;
  readonly #side: Panels;
  readonly #panes = new Map<string, Pane>(); // least recently shown first
  readonly #dismissed = new Set<string>(); // requests that the person put off: pane and user
  #list: TerminalInfo[] = [];
  #listAsked = 0;
  #listShown = 0;
  #shown: string | null = null;
  #ticker: number | undefined;
  #newsTimer: number | undefined;
  #busy = false; // a terminal is being made or closed
  #called = ''; // what an agent did while nobody looked

  constructor(
    token: string,
    private readonly me: Me,
    private readonly info: SessionInfo,
    origins: Origins,
  ) {
    this.#session = new Session({ id: info.id, token, origins });
    this.#view = new View({
      select: (id) => this.#select(id, false),
      create: () => void this.#create(),
      close: (id) => void this.#close(id),
      take: () => this.#send({ type: 'take_control' }),
      request: () => this.#send({ type: 'request_control' }),
      cancel: () => this.#send({ type: 'cancel_request' }),
      release: () => this.#send({ type: 'revoke_control' }),
      takeBack: () => this.#send({ type: 'take_back' }),
      grant: (to) => this.#send({ type: 'grant_control', to }),
      dismiss: (user) => this.#dismiss(user),
      retry: () => this.#pane?.terminal.retry(),
      discard: () => this.#pane?.discard(),
      interrupt: () => this.#pane?.interrupt(),
      focusTerminal: () => this.#pane?.screen.focus(),
      find: () => this.#find(),
      readAloud: (on) => this.#panes.forEach((pane) => pane.screen.readAloud(on)),
      session: otherSession,
    });
    this.#view.stage.prepend(this.#search.element);
    this.#keybar = new Keybar({
      type: (data) => this.#pane?.screen.type(data),
      arrow: (final) => this.#pane?.screen.type(this.#pane.screen.arrow(final)),
      paste: () => void this.#paste(),
    });
    const env = new EnvDialog(this.#session, {
      terminals: () => this.#list.filter((t) => !t.exited).map(({ id }) => ({ id, label: labels(this.#list).get(id) ?? id })),
      confirm: (title, text, yes) => this.#view.ask(title, text, yes),
    });
    this.#tools = new Tools({
      earlier: () => this.#showEarlier('Earlier output', this.#pane?.earlier),
      find: () => this.#find(),
      copy: () => this.#copy(),
      paste: () => void this.#paste(),
      size: (step) => this.#size(step),
      record: () => void this.#record(),
      recordings: () => void this.#recordings.open(),
      share: (to) => void this.#share(to),
      env: this.#may('env') ? () => env.open() : undefined,
      approvals: this.#may('approve') ? () => this.#approvals?.open() : undefined,
    });
    this.#agent = new AgentBar({
      start: (what) => void this.#startAgent(what),
      pause: () => void this.#steer('pause'),
      resume: () => void this.#steer('resume'),
      stop: () => void this.#stopAgent(),
      details: () => this.#side.toggleAgent(),
    }, this.#may('shell'));
    this.#recordings = new Recordings({
      list: () => this.#session.recordings(),
      fetch: (id) => this.#session.recording(id),
      label: ({ pty_id, command }) => labels(this.#list).get(pty_id) ?? [...labels([{ id: pty_id, cols: 0, rows: 0, created_at: 0, ...(command ? { command } : {}) }]).values()][0] ?? pty_id,
    });
    if (this.#may('approve')) {
      this.#approvals = new Approvals(this.#session, {
        naming: { you: me.user.id, name: (id) => this.#name(id), terminal: (id) => labels(this.#list).get(id) },
        select: (id) => this.#select(id, true),
        focusTerminal: () => this.#pane?.screen.focus(),
        changed: () => this.#draw(),
      });
    }
    this.#side = new Panels(this.#session, info, {
      you: me.user.id,
      ask: (title, text, yes) => this.#view.ask(title, text, yes),
      hint: (text) => this.#view.hint(text),
      leave: () => this.#pane?.screen.focus(),
    });
    this.#view.sessions(me.sessions.map(({ id, dashboard }) => ({ id, label: dashboard || id })), info.id);
  }

  // text is what the shown terminal shows; all adds what has scrolled away.
  text(all = false): string {
    return this.#pane?.screen.text(all) ?? '';
  }

  hint(text: string): void {
    this.#view.hint(text);
  }

  // offerSignOut shows the way out to somebody who could sign in again.
  offerSignOut(): void {
    const button = byId('sign-out', HTMLButtonElement);
    button.hidden = false;
    button.addEventListener('click', () => void this.#once(async () => {
      await this.#session.signOut();
      forgetLink();
    }));
  }

  get webgl(): boolean {
    return this.#pane?.screen.webgl ?? false;
  }

  // start shows the wanted terminal, or the first that still runs.
  async start(wanted: string | null): Promise<void> {
    document.body.classList.add('ready');
    await this.#firstList();
    this.#approvals?.start();
    const running = this.#list.filter((t) => !t.exited);
    const first = this.#list.find((t) => t.id === wanted) ?? running[0] ?? this.#list[0];
    if (first === undefined) this.#empty();
    else this.#select(first.id, true);
    new ResizeObserver(() => this.#pane?.layout(true)).observe(this.#view.hosts);
    window.addEventListener('online', () => this.#panes.forEach((pane) => pane.terminal.online()));
    // A page that is left may be kept for the way back, with its sockets: it would
    // go on giving terminals its size.
    window.addEventListener('pagehide', () => this.#panes.forEach((pane) => pane.terminal.stop()));
    window.addEventListener('pageshow', ({ persisted }) => persisted && location.reload());
    window.addEventListener('focus', () => this.#returned());
    document.addEventListener('visibilitychange', () => document.hidden || this.#returned());
  }

  // firstList waits for a sandbox that isn't there yet.
  async #firstList(): Promise<void> {
    for (let failures = 1; ; failures++) {
      try {
        await this.#refresh();
        this.#view.card(null);
        return;
      } catch (error) {
        if (!(error instanceof ApiError) || !error.passing) throw error;
        this.#view.card({ title: 'The sandbox can’t be reached', text: 'Trying again by itself.' });
        await new Promise((resolve) => setTimeout(resolve, backoff(failures, Math.random())));
      }
    }
  }

  get #pane(): Pane | undefined {
    return this.#shown === null ? undefined : this.#panes.get(this.#shown);
  }

  #may(capability: string): boolean {
    return this.info.capabilities.includes(capability);
  }

  // returned: the person looks at the page again. Timers may have slept.
  #returned(): void {
    this.#called = '';
    for (const pane of this.#panes.values()) {
      if (pane.terminal.connection.phase.name === 'lost') pane.terminal.retry();
      pane.terminal.look();
    }
    this.#pane?.layout(true);
    this.#refresh().catch(() => {}); // the list stays as it was; the banner tells about the connection
  }

  // news: the session has other terminals than before. What is heard until the
  // list is asked for is answered by it as well.
  #news(): void {
    if (this.#newsTimer !== undefined) return;
    const crowd = Math.min(newsMostMs, (this.#pane?.control.count ?? 0) * newsPerViewerMs);
    this.#newsTimer = window.setTimeout(() => {
      this.#newsTimer = undefined;
      this.#refresh().catch(() => {}); // the next one will do
    }, Math.random() * crowd);
  }

  // lookOut waits for the first terminal of a session that has none.
  #lookOut(): void {
    clearTimeout(this.#newsTimer);
    this.#newsTimer = window.setTimeout(async () => {
      this.#newsTimer = undefined;
      if (!document.hidden) await this.#refresh().catch(() => {});
      const first = this.#list.find((t) => !t.exited);
      if (this.#shown !== null) return;
      if (first === undefined) this.#lookOut();
      else this.#select(first.id, false);
    }, emptyMs);
  }

  async #refresh(): Promise<void> {
    const turn = ++this.#listAsked;
    const list = await this.#session.terminals();
    if (turn < this.#listShown) return; // a later answer was faster
    this.#listShown = turn;
    this.#list = list.sort((a, b) => a.created_at - b.created_at || (a.id < b.id ? -1 : 1));
    this.#draw();
  }

  #select(id: string, focus: boolean): void {
    this.#view.card(null);
    let pane = this.#panes.get(id);
    this.#pane?.show(false);
    if (this.#search.target !== undefined) this.#search.close();
    if (pane === undefined) pane = this.#open(id);
    this.#panes.delete(id); // to the end: most recently shown
    this.#panes.set(id, pane);
    this.#shown = id;
    tab.set('pty', id);
    pane.show(true);
    if (focus) pane.screen.focus();
    this.#draw();
  }

  #open(id: string): Pane {
    this.#evict();
    const host = h('div', { class: 'host', 'data-pty-id': id });
    this.#view.hosts.append(host);
    const pane: Pane = new Pane(this.#session, { id, you: this.me.user, host, followsSize: tab.get('size') === 'follow' }, {
      changed: () => this.#draw(),
      notice: (text) => {
        if (pane.shown) this.#view.hint(text);
      },
      refused: (text) => {
        if (pane.shown) this.#view.hint(text, this.#may('agent') ? { label: 'Pause', run: () => void this.#steer('pause') } : undefined);
      },
      stopped: (turn) => this.#stopped(pane, turn),
      skipped: (part) => {
        const show = { label: 'Show it', run: () => this.#showEarlier('Skipped output', part) };
        if (pane.shown) this.#view.hint('Some output was skipped: the connection was too slow.', show);
      },
      confirm: (title, text, yes) => this.#view.ask(title, text, yes),
      leave: () => this.#approvals?.focus() || this.#view.leave(),
      find: () => this.#find(),
      found: (index, count) => {
        if (this.#search.target === pane.screen) this.#search.found(index, count);
      },
      size: (step) => this.#size(step),
      link: (url) => void this.#follow(url),
      relist: () => this.#refresh().catch(() => {}), // the next one will do
      news: () => this.#news(),
      modify: (data) => this.#keybar.modify(data),
    });
    pane.terminal.start();
    return pane;
  }

  // stopped: an agent has finished a turn, which nobody may have seen.
  #stopped(pane: Pane, turn: Turn): void {
    if (document.hidden) this.#called = callText(turn);
    if (pane.shown) return;
    const where = labels(this.#list).get(pane.id) ?? 'another terminal';
    this.#view.hint(`${callText(turn)} in ${where}`, { label: 'Show', run: () => this.#select(pane.id, true) });
  }

  // evict disconnects the terminal that wasn't shown for longest, rather one
  // without control than one with.
  #evict(): void {
    if (this.#panes.size < mostOpen) return;
    const all = [...this.#panes.values()];
    const pane = all.find((p) => !p.mine) ?? all[0];
    if (pane !== undefined) this.#drop(pane);
  }

  #drop(pane: Pane): void {
    this.#panes.delete(pane.id);
    pane.close();
  }

  async #create(): Promise<void> {
    await this.#once(async () => {
      const id = await this.#session.create();
      await this.#refresh();
      this.#select(id, true);
    });
  }

  async #close(id: string): Promise<void> {
    const label = labels(this.#list).get(id) ?? 'terminal';
    const ended = this.#ended(this.#list.find((t) => t.id === id), this.#panes.get(id));
    const text = 'The programs that run in it are ended, for everybody.';
    if (!ended && !(await this.#view.ask(`Close “${label}”?`, text, 'Close terminal'))) return;
    await this.#once(async () => {
      await this.#session.close(id);
      await this.#refresh();
      const pane = this.#panes.get(id);
      if (pane !== undefined) this.#drop(pane);
      if (this.#shown !== id) return;
      this.#shown = null;
      const next = this.#list.find((t) => !t.exited) ?? this.#list[0];
      if (next === undefined) this.#empty();
      else this.#select(next.id, true);
    });
  }

  // once does one change at a time and says what went wrong. Of what may have
  // been done all the same it offers to ask, and nothing else.
  async #once(change: () => Promise<void>): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    try {
      await change();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      const ask = error instanceof Unsettled ? { label: 'Ask again', run: () => void this.#once(change) } : this.#advice(text);
      this.#view.hint(text, ask);
    } finally {
      this.#busy = false;
      this.#draw();
    }
  }

  // advice offers to copy the command that a refusal advises.
  #advice(text: string): HintAction | undefined {
    const command = installOf(text);
    if (command === undefined) return undefined;
    return { label: 'Copy the command', run: () => void copy(command).then((done) => this.#view.hint(done ? 'Copied: paste it into this terminal' : command)) };
  }

  // send tells the relay what the person wants; by the time a connection is
  // back they may want something else.
  #send(message: ClientMessage): void {
    if (this.#pane?.terminal.connection.phase.name === 'attached') this.#pane.terminal.send(message);
    else this.#view.hint('There is no connection at the moment');
  }

  async #record(): Promise<void> {
    const pane = this.#pane;
    if (pane === undefined) return;
    const on = pane.terminal.facts.recording === '';
    await this.#once(async () => {
      await this.#session.record(pane.id, on);
      this.#view.hint(on ? 'Recording: everybody here can see that' : 'The recording is in the list of recordings');
    });
  }

  async #share(to: string): Promise<void> {
    const pane = this.#pane;
    if (pane === undefined) return;
    if (to === closedToOthers || (await this.#view.ask(warning.title, warning.text, warning.yes))) {
      await this.#once(() => this.#session.share(pane.id, to));
    } else this.#draw();
  }

  async #startAgent({ name, command }: Start): Promise<void> {
    const pane = this.#pane;
    if (pane === undefined) return;
    await this.#once(() => this.#session.startAgent(pane.id, { name, ...(command === undefined ? {} : { command }) }));
    pane.screen.focus();
  }

  async #steer(verb: 'pause' | 'resume' | 'stop'): Promise<void> {
    const pane = this.#pane;
    if (pane === undefined) return;
    await this.#once(() => this.#session.steerAgent(pane.id, verb));
    pane.screen.focus();
  }

  async #stopAgent(): Promise<void> {
    const label = agentLabel(this.#pane?.control.agent ?? '');
    if (await this.#view.ask(`Stop ${label}?`, 'It is interrupted, and ended if that is not enough. The terminal stays.', 'Stop')) await this.#steer('stop');
  }

  #find(): void {
    if (this.#pane !== undefined) this.#search.open(this.#pane.screen, this.#pane.screen.selection);
  }

  // copy copies what is selected; on a phone, where nothing can be, the screen.
  #copy(): void {
    const screen = this.#pane?.screen;
    if (screen === undefined || screen.copy()) return;
    if (touch.matches) screen.copyAll();
    else this.#view.hint('Select some text first');
  }

  #size(step: SizeStep): void {
    choose(resized(chosen(), font().normal, step));
    this.#pane?.layout(true);
    this.#draw();
  }

  #showEarlier(title: string, part: LogPart | null | undefined): void {
    const pane = this.#pane;
    if (pane === undefined || !part) return;
    void this.#earlier.show(title, part, pane.screen.cols, (wanted) => this.#session.log(pane.id, wanted));
  }

  #empty(): void {
    this.#lookOut();
    this.#view.card({
      title: 'No terminal is open',
      text: this.#may('shell') ? 'Open one: everybody in this session can watch it.' : 'Wait until somebody opens one.',
      action: this.#may('shell')
        ? { label: 'New terminal', run: () => void this.#create() }
        : { label: 'Look again', run: () => location.reload() },
    });
    this.#draw();
  }

  #dismiss(user: string): void {
    this.#dismissed.add(`${this.#shown} ${user}`);
    this.#draw();
  }

  // follow opens a link from the terminal's output, which anybody may have
  // written: the person sees where it goes.
  async #follow(url: string): Promise<void> {
    if (!/^https?:\/\//i.test(url)) return this.#view.hint('Only links to web pages can be opened');
    if (await this.#view.ask('Open this link?', url, 'Open')) window.open(url, '_blank', 'noopener,noreferrer');
  }

  async #paste(): Promise<void> {
    try {
      await this.#pane?.paste(await navigator.clipboard.readText());
    } catch {
      this.#view.hint('The browser does not let this page read the clipboard');
    }
  }

  #draw(): void {
    const model = this.#model();
    this.#view.draw(model);
    this.#tools.draw(model.tools);
    this.#agent.draw(model.agent, model.live);
    this.#side.draw(this.#pane, labels(this.#list), model.agent);
    this.#approvals?.draw();
    // Countdowns need a draw now and then, everything else draws when it changes.
    const counting = (this.#pane?.terminal.connection.lostAt ?? null) !== null || model.control.kind === 'away';
    clearTimeout(this.#ticker);
    if (counting) this.#ticker = window.setTimeout(() => this.#draw(), 250);
  }

  #model(): Model {
    const pane = this.#pane;
    const now = Date.now();
    const names = labels(this.#list);
    const state = pane?.terminal.connection;
    const ended = state !== undefined && hasEnded(state);
    // A connection that is back at once was never away.
    const there = state?.everAttached === true && state.phase.name !== 'over' && !overdue(state, now);
    const live = there && state.waiting === null && !ended;
    const requests = pane?.mine && live ? this.#requests(pane) : [];
    const label = (pane && names.get(pane.id)) ?? 'terminal';
    const [asking] = requests;
    return {
      status: state === undefined ? { tone: 'idle', text: 'No terminal' } : statusOf(state),
      tabs: this.#list.map((t) => {
        const open = this.#panes.get(t.id);
        return {
          id: t.id,
          label: names.get(t.id) ?? t.id,
          hint: t.command ?? '',
          active: t.id === this.#shown,
          ended: this.#ended(t, open),
          unseen: open?.unseen ?? false,
          mine: open?.mine ?? false,
          egress: terminalEgress(t.egress),
        };
      }),
      mayCreate: this.#may('shell'),
      mayClose: this.#may('shell'),
      people: pane === undefined ? { count: 0, list: [] } : peopleOf(pane.control, live),
      control: pane === undefined || ended || !state?.everAttached ? noControl : controlOf(pane.control, live, now),
      agent: pane === undefined || ended || !state?.everAttached ? noAgent : agentOf(pane.control, this.#may('agent')),
      requests,
      banner: state === undefined ? null : bannerOf(state, now, this.#may('shell'), pane?.terminal.pending ?? 0),
      live,
      stale: !live && !ended,
      tools: {
        earlier: pane?.earlier != null,
        mayRecord: pane !== undefined && this.#may('record') && !ended,
        recording: Boolean(pane?.terminal.facts.recording),
        share: pane === undefined || ended ? noShare : shareOf(pane.id, pane.terminal.facts.shared, this.#list, names, pane.control.canControl),
        typeSize: font().base,
      },
      held: pane !== undefined && pane.terminal.facts.held && pane.mine && live,
      progress: pane === undefined ? null : progressOf(pane.terminal.progress),
      detail: pane === undefined ? '' : this.#detail(pane),
      title: titleOf(label, this.#approvals?.asking ?? '', asking?.name, this.#called),
    };
  }

  // name is what somebody is called in any terminal that is open.
  #name(id: string): string {
    const known = [...this.#panes.values()].find(({ control }) => control.names.has(id));
    return known === undefined ? nameOf(nobody('', ''), id) : nameOf(known.control, id);
  }

  #ended(info: TerminalInfo | undefined, pane: Pane | undefined): boolean {
    return Boolean(info?.exited) || (pane !== undefined && hasEnded(pane.terminal.connection));
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

  #detail({ screen, mine, terminal: { leads } }: Pane): string {
    const scale = Math.round(screen.scale * 100);
    const elsewhere = mine && !leads ? ['sized by your other window'] : [];
    const egress = terminalEgress(this.#list.find((t) => t.id === this.#shown)?.egress);
    return [`${screen.cols} × ${screen.rows}`, ...(scale === 100 ? [] : [`${scale} %`]), ...elsewhere, ...(egress === '' ? [] : [egress])].join(' · ');
  }
}
