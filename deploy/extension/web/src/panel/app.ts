// One session in the panel: a terminal, a chat, and the person's tab if she
// shares it.

import { Session, webPlatform, type ApiError, type Origins, type SessionInfo } from '@fairlead/core';
import { byId, setAttribute, setHidden, setText } from '@fairlead/console/ui/dom.ts';
import { visible } from '@fairlead/console/ui/visible.ts';
import { Feed } from '../chat/feed.ts';
import { ChatView } from '../chat/view.ts';
import { Sharing } from '../tabs/sharing.ts';
import { Screen } from '../terminal/screen.ts';
import { PanelTerminal } from '../terminal/terminal.ts';
import { begins, draw } from '../terminal/view.ts';

export interface AppOptions {
  session: SessionInfo;
  token: string;
  relays: Origins;
  origins: readonly string[];
  refused(error: ApiError): void; // nothing more can be done with this token
}

type TabName = 'terminal' | 'chat';

const noteMs = 6_000;

// One screen for the life of the page: another session's terminal is another
// text on it.
let screen: Screen | undefined;

export class App {
  readonly #feed: Feed;
  readonly #view: ChatView;
  readonly #terminal: PanelTerminal;
  readonly #sharing: Sharing;
  readonly #screen: Screen;
  readonly #stop = new AbortController();
  #note: unknown;

  constructor(private readonly options: AppOptions) {
    const { session: about, token, relays } = options;
    const session = new Session({ id: about.id, token, origins: relays });
    this.#sharing = new Sharing(options.origins, (tab) => {
      this.#terminal.look(tab === undefined ? undefined : { ...tab });
      if (tab !== undefined) this.#feed.refresh(); // by its address the sandbox's tab is brought to the front
    }, this.#stop.signal);
    this.#feed = new Feed(session, {
      changed: () => this.#view.draw(this.#feed),
      connected: (connected) => this.#connected(connected),
      over: (error) => this.#over(error),
      problem: (text) => this.#say(text),
      address: () => this.#sharing.about?.url,
    }, webPlatform);
    this.#view = new ChatView({ show: (id) => void this.#feed.show(id), again: (row) => void this.#feed.again(row), drop: (row) => this.#feed.drop(row) });
    screen ??= new Screen(byId('screen'), (data) => current?.typed(data), () => current?.resized());
    this.#screen = screen;
    this.#terminal = new PanelTerminal(session, {
      changed: (state) => {
        draw(state);
        if (state.name === 'live') this.#screen.focus();
      },
      size: () => this.#screen.size,
      write: (bytes) => this.#screen.write(bytes),
      reset: () => this.#screen.reset(),
      note: (text) => this.#say(text),
    }, kept(about.id), webPlatform);
    current = { typed: (data) => this.#terminal.type(data), resized: () => this.#terminal.resized() };
  }

  async start(): Promise<void> {
    this.#listen();
    this.#screen.reset();
    this.#capabilities();
    draw(this.#terminal.state);
    this.#view.draw(this.#feed);
    this.select(((await chrome.storage.local.get('tab')).tab as TabName | undefined) === 'chat' ? 'chat' : 'terminal');
    await this.#sharing.restore();
    byId('share', HTMLInputElement).checked = this.#sharing.on;
    if (this.#stop.signal.aborted) return;
    this.#feed.start();
    this.#terminal.resume();
  }

  stop(): void {
    this.#stop.abort();
    this.#feed.stop();
    this.#terminal.stop();
    current = undefined;
  }

  select(name: TabName): void {
    for (const other of ['terminal', 'chat'] as const) {
      setHidden(other, other !== name);
      setAttribute(`tab-${other}`, 'aria-selected', String(other === name));
      setAttribute(`tab-${other}`, 'tabindex', other === name ? '0' : '-1');
    }
    void chrome.storage.local.set({ tab: name });
    if (name === 'terminal') this.#screen.fit();
    else this.#view.draw(this.#feed);
  }

  #listen(): void {
    const { signal } = this.#stop;
    const on = (id: string, name: string, run: (event: Event) => void) => byId(id).addEventListener(name, run, { signal });
    for (const name of ['terminal', 'chat'] as const) on(`tab-${name}`, 'click', () => this.select(name));
    on('tabs', 'keydown', (event) => this.#arrows(event as KeyboardEvent));
    on('card-button', 'click', () => this.#terminal.start());
    on('lost-anew', 'click', () => this.#terminal.start());
    document.addEventListener('keydown', (event) => this.#key(event), { signal });
    const text = byId('chat-text', HTMLTextAreaElement);
    on('chat-text', 'keydown', (event) => {
      const key = event as KeyboardEvent;
      if (key.key !== 'Enter' || key.shiftKey || key.isComposing) return;
      event.preventDefault();
      byId('composer', HTMLFormElement).requestSubmit();
    });
    on('composer', 'submit', (event) => {
      event.preventDefault();
      const message = text.value.trim();
      if (message === '') return;
      text.value = '';
      void this.#feed.say(message);
    });
    on('chat-stop', 'click', () => void this.#feed.halt());
    on('chat-clear', 'click', () => void this.#feed.clear());
    const share = byId('share', HTMLInputElement);
    on('share', 'change', () => void this.#sharing.set(share.checked).then((done) => (share.checked = done)));
  }

  // The first key begins, when nothing else wants it.
  #key(event: KeyboardEvent): void {
    const { name } = this.#terminal.state;
    if (name !== 'idle' || byId('terminal').hidden || !begins(event)) return;
    if ((event.target as Element | null)?.closest('button, input, select, a, [popover]') != null) return;
    event.preventDefault();
    this.#terminal.start();
  }

  #arrows(event: KeyboardEvent): void {
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    const other: TabName = byId('terminal').hidden ? 'terminal' : 'chat';
    this.select(other);
    byId(`tab-${other}`).focus();
  }

  // What the person may not do is said before she tries.
  #capabilities(): void {
    const { capabilities } = this.options.session;
    const may = (...names: string[]) => names.every((name) => capabilities.includes(name));
    const shell = may('shell', 'control');
    byId('card-button', HTMLButtonElement).disabled = !shell;
    setHidden('no-shell', shell);
    const chat = may('chat');
    byId('chat-text', HTMLTextAreaElement).disabled = !chat;
    byId('chat-send', HTMLButtonElement).disabled = !chat;
    byId('chat-clear', HTMLButtonElement).disabled = !chat;
    byId('chat-text', HTMLTextAreaElement).placeholder = chat ? 'Say what to do on the page' : 'You may read here, not write.';
  }

  #connected(connected: boolean): void {
    const status = byId('status');
    status.dataset.tone = connected ? 'good' : 'busy';
    setText('status-text', connected ? 'Connected' : 'Reconnecting');
    // Only now may the arrow go that points to where we are.
    if (connected) chrome.runtime.sendMessage({ type: 'sidebarOpened' }).catch(() => undefined);
  }

  #over(error: ApiError): void {
    if (error.status === 401) return this.options.refused(error);
    byId('status').dataset.tone = 'bad';
    setText('status-text', 'No chat here');
    this.#say(error.status === 404 ? 'This relay has no side panel for this extension: it must be listed in its --extension-ids.' : error.message);
  }

  #say(text: string): void {
    clearTimeout(this.#note as number);
    setText('note', visible(text));
    setHidden('note', false);
    this.#note = setTimeout(() => setHidden('note', true), noteMs);
  }
}

// Whoever has the page's one screen now.
let current: { typed(data: string): void; resized(): void } | undefined;

// kept lasts as long as the panel, and longer than its page.
const kept = (session: string) => ({
  get: (): string | null => sessionStorage.getItem(`terminal.${session}`),
  set: (name: string | null): void => (name === null ? sessionStorage.removeItem(`terminal.${session}`) : sessionStorage.setItem(`terminal.${session}`, name)),
});

// For tests in a browser.
declare global {
  interface Window {
    fairlead?: { screenText(): string };
  }
}
window.fairlead = { screenText: () => screen?.text() ?? '' };
