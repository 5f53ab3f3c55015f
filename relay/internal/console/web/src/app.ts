// The page as a whole: whose link it is, which terminals there are, which one
// is shown, and what the buttons do.

import { ApiError, closeTerminal, createTerminal, listTerminals, obtainGrant, obtainTicket } from './api.ts';
import { backoff } from './backoff.ts';
import { hasEnded } from './connection.ts';
import { h } from './dom.ts';
import { Grants } from './grants.ts';
import { Keybar } from './keybar.ts';
import { bannerOf, controlOf, labels, noControl, peopleOf, statusOf, type Model } from './model.ts';
import { Pane } from './pane.ts';
import type { Me, SessionInfo, TerminalInfo } from './protocol.ts';
import { tab } from './storage.ts';
import { View } from './view.ts';

// Terminals that stay connected while another is shown.
const mostOpen = 8;

export class App {
  readonly #view: View;
  readonly #grants: Grants;
  readonly #keybar: Keybar;
  readonly #panes = new Map<string, Pane>(); // least recently shown first
  readonly #dismissed = new Set<string>(); // requests that the person put off: pane and user
  #list: TerminalInfo[] = [];
  #listAsked = 0;
  #listShown = 0;
  #shown: string | null = null;
  #ticker: number | undefined;
  #busy = false; // a terminal is being made or closed

  constructor(
    token: string,
    private readonly me: Me,
    private readonly session: SessionInfo,
  ) {
    this.#grants = new Grants(
      () => obtainGrant(token, session.id),
      (grant) => this.#panes.forEach((pane) => pane.socket.send({ type: 'reauth', grant })),
    );
    this.#view = new View({
      select: (id) => this.#select(id, false),
      create: () => void this.#create(),
      close: (id) => void this.#close(id),
      take: () => this.#pane?.socket.send({ type: 'take_control' }),
      request: () => this.#pane?.socket.send({ type: 'request_control' }),
      cancel: () => this.#pane?.socket.send({ type: 'cancel_request' }),
      release: () => this.#pane?.socket.send({ type: 'revoke_control' }),
      grant: (to) => this.#pane?.socket.send({ type: 'grant_control', to }),
      dismiss: (user) => this.#dismiss(user),
      retry: () => this.#pane?.socket.retry(),
      focusTerminal: () => this.#pane?.screen.focus(),
      readAloud: (on) => this.#panes.forEach((pane) => pane.screen.readAloud(on)),
      session: (id) => {
        tab.set('session', id);
        tab.set('pty', null);
        location.reload();
      },
    });
    this.#keybar = new Keybar({
      type: (data) => this.#pane?.screen.type(data),
      arrow: (final) => this.#pane?.screen.type(this.#pane.screen.arrow(final)),
      paste: () => void this.#pasteFromClipboard(),
    });
    this.#view.sessions(me.sessions.map(({ id, dashboard }) => ({ id, label: dashboard || id })), session.id);
  }

  // text is what the shown terminal shows; all adds what has scrolled away.
  text(all = false): string {
    return this.#pane?.screen.text(all) ?? '';
  }

  // start shows the wanted terminal, or the first that still runs.
  async start(wanted: string | null): Promise<void> {
    document.body.classList.add('ready');
    await this.#firstList();
    const running = this.#list.filter((t) => !t.exited);
    const first = this.#list.find((t) => t.id === wanted) ?? running[0] ?? this.#list[0];
    if (first === undefined) this.#empty();
    else this.#select(first.id, true);
    new ResizeObserver(() => this.#pane?.layout(true)).observe(this.#view.hosts);
    window.addEventListener('online', () => this.#panes.forEach((pane) => pane.socket.online()));
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

  get #mayShell(): boolean {
    return this.session.capabilities.includes('shell');
  }

  // returned: the person looks at the page again. Timers may have slept.
  #returned(): void {
    for (const pane of this.#panes.values()) {
      if (pane.socket.state.phase.name === 'lost') pane.socket.retry();
    }
    this.#pane?.layout(true);
    this.#refresh().catch(() => {}); // the list stays as it was; the banner tells about the connection
  }

  async #refresh(): Promise<void> {
    const turn = ++this.#listAsked;
    const list = await listTerminals(await this.#grants.current(), this.session.id);
    if (turn < this.#listShown) return; // a later answer was faster
    this.#listShown = turn;
    this.#list = list.sort((a, b) => a.created_at - b.created_at || (a.id < b.id ? -1 : 1));
    this.#draw();
  }

  #select(id: string, focus: boolean): void {
    this.#view.card(null);
    let pane = this.#panes.get(id);
    this.#pane?.show(false);
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
    const pane: Pane = new Pane(id, this.me.user, host, {
      prepare: async (fresh) => obtainTicket(await this.#grants.current(fresh), this.session.id, id),
      changed: () => this.#draw(),
      notice: (text) => {
        if (pane.shown) this.#view.hint(text);
      },
      leave: () => this.#view.leave(),
      link: (url) => void this.#follow(url),
      relist: () => this.#refresh().catch(() => {}), // the next one will do
      modify: (data) => this.#keybar.modify(data),
    });
    pane.socket.start();
    return pane;
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
      const id = await this.#insist((grant, key) => createTerminal(grant, this.session.id, key));
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
      await this.#insist((grant, key) => closeTerminal(grant, this.session.id, id, key));
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

  // once does one change at a time and says what went wrong.
  async #once(change: () => Promise<void>): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    try {
      await change();
    } catch (error) {
      this.#view.hint(error instanceof Error ? error.message : String(error));
    } finally {
      this.#busy = false;
      this.#draw();
    }
  }

  // insist repeats a change under the same key, so that it is made once even
  // when only its answer was lost.
  async #insist<T>(change: (grant: string, key: string) => Promise<T>): Promise<T> {
    const key = crypto.randomUUID();
    for (let failures = 1; ; failures++) {
      try {
        return await change(await this.#grants.current(), key);
      } catch (error) {
        if (!(error instanceof ApiError) || !error.passing || failures === 3) throw error;
        await new Promise((resolve) => setTimeout(resolve, backoff(failures, Math.random())));
      }
    }
  }

  #empty(): void {
    this.#view.card({
      title: 'No terminal is open',
      text: this.#mayShell ? 'Open one: everybody in this session can watch it.' : 'Wait until somebody opens one.',
      action: this.#mayShell
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

  async #pasteFromClipboard(): Promise<void> {
    try {
      this.#pane?.screen.paste(await navigator.clipboard.readText());
    } catch {
      this.#view.hint('The browser does not let this page read the clipboard');
    }
  }

  #draw(): void {
    const model = this.#model();
    this.#view.draw(model);
    // Countdowns need a draw a second, everything else draws when it changes.
    const counting = this.#pane?.socket.state.phase.name === 'lost' || model.control.kind === 'away';
    clearTimeout(this.#ticker);
    if (counting) this.#ticker = window.setTimeout(() => this.#draw(), 500);
  }

  #model(): Model {
    const pane = this.#pane;
    const now = Date.now();
    const names = labels(this.#list);
    const state = pane?.socket.state;
    const ended = state !== undefined && hasEnded(state);
    const live = state?.phase.name === 'attached' && state.waiting === null && !ended;
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
        };
      }),
      mayCreate: this.#mayShell,
      mayClose: this.#mayShell,
      people: pane === undefined ? { count: 0, list: [] } : peopleOf(pane.control, live),
      control: pane === undefined || ended || !state?.everAttached ? noControl : controlOf(pane.control, live, now),
      requests,
      banner: state === undefined ? null : bannerOf(state, now, this.#mayShell),
      live,
      stale: !live && !ended,
      detail: pane === undefined ? '' : this.#detail(pane),
      title: asking === undefined ? `${label} · fairlead` : `${asking.name} asks for control · fairlead`,
    };
  }

  #ended(info: TerminalInfo | undefined, pane: Pane | undefined): boolean {
    return Boolean(info?.exited) || (pane !== undefined && hasEnded(pane.socket.state));
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

  #detail({ screen }: Pane): string {
    const scale = Math.round(screen.scale * 100);
    return `${screen.cols} × ${screen.rows}${scale === 100 ? '' : ` · ${scale} %`}`;
  }
}
