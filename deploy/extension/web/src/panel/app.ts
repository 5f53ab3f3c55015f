// One session in the panel: a terminal, a chat, and the person's tab if she
// shares it.

import { Session, webPlatform, type ApiError, type Origins, type Person, type SessionInfo } from '@fairlead/core';
import { byId, setAttribute, setHidden, setText } from '@fairlead/console/ui/dom.ts';
import { visible } from '@fairlead/console/ui/visible.ts';
import { Drafts } from '../chat/drafts.ts';
import { Feed } from '../chat/feed.ts';
import type { Unsent } from '../chat/model.ts';
import { ChatView } from '../chat/view.ts';
import { Sharing } from '../tabs/sharing.ts';
import { Screen } from '../terminal/screen.ts';
import { PanelTerminal } from '../terminal/terminal.ts';
import { begins, draw } from '../terminal/view.ts';

export interface AppOptions {
  you: Person;
  session: SessionInfo;
  token: string;
  relays: Origins;
  origins: readonly string[];
  refused(error: ApiError): void; // nothing more can be done with this token
}

// What an App leaves behind that was ended against the person's will.
export interface Left {
  of: string; // the person and the session
  unsent: Unsent[];
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
  readonly #drafts = new Drafts(byId('chat-text', HTMLTextAreaElement));
  readonly #stop = new AbortController();
  #note: unknown;
  #isConnected = false;
  #wanted = ''; // a conversation that is to be shown as soon as it is listed

  constructor(private readonly options: AppOptions) {
    const { session: about, token, relays } = options;
    const session = new Session({ id: about.id, token, origins: relays });
    this.#sharing = new Sharing(options.origins, (tab) => {
      this.#terminal.look(tab === undefined ? undefined : { ...tab });
      if (tab !== undefined) this.#feed.refresh(); // by its address the sandbox's tab is brought to the front
    }, this.#stop.signal);
    this.#feed = new Feed(session, {
      changed: () => this.#draw(),
      connected: (connected) => this.#connected(connected),
      over: (error) => this.#over(error),
      problem: (text) => this.#say(text),
      unanswered: () => this.#view.unanswered(),
      address: () => this.#sharing.about?.url,
    }, webPlatform);
    this.#view = new ChatView({ id: options.you.id, mayApprove: about.capabilities.includes('approve') }, {
      show: (id) => void this.#feed.show(id),
      again: (row) => void this.#feed.again(row),
      drop: (row) => this.#feed.drop(row),
      answer: (row, allow) => void this.#feed.answer(row, allow),
    });
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
      refused: (error) => options.refused(error),
    }, kept(about.id), webPlatform);
    current = { typed: (data) => this.#terminal.type(data), resized: () => this.#terminal.resized() };
  }

  async start(): Promise<void> {
    this.#listen();
    this.#screen.reset();
    this.#capabilities();
    draw(this.#terminal.state);
    this.#draw();
    this.select(((await chrome.storage.local.get('tab')).tab as TabName | undefined) === 'chat' ? 'chat' : 'terminal');
    await this.#sharing.restore();
    byId('share', HTMLInputElement).checked = this.#sharing.on;
    if (this.#stop.signal.aborted) return;
    this.#feed.start();
    this.#terminal.resume();
  }

  // stop ends all of it: the person has signed out, or chosen another session.
  stop(): void {
    this.#end();
    this.#terminal.stop();
  }

  // leave ends it so that it can be taken up again: the token is over.
  leave(): Left {
    this.#end();
    this.#terminal.leave();
    return { of: this.#name, unsent: this.#feed.chat.unsent };
  }

  #end(): void {
    this.#stop.abort();
    this.#feed.stop();
    current = undefined;
  }

  // take goes on with what another App has left, if it was this person's.
  take({ of, unsent }: Left): void {
    if (of === this.#name) this.#feed.chat.restore(unsent);
  }

  get #name(): string {
    return `${this.options.you.id} ${this.options.session.id}`;
  }

  get session(): string {
    return this.options.session.id;
  }

  // converse shows a conversation, at once or when it is listed.
  converse(conversation: string): void {
    this.#wanted = conversation;
    this.select('chat');
    this.#feed.refresh();
    this.#draw();
  }

  #draw(): void {
    const { chat } = this.#feed;
    const tab = this.#wanted === '' ? undefined : chat.of(this.#wanted);
    if (tab !== undefined) {
      this.#wanted = '';
      if (tab.id !== chat.shown.id) void this.#feed.show(tab.id);
    }
    this.#drafts.turn(chat.shown.id);
    this.#view.draw(chat);
    setHidden('chat-console', chat.shown.conversation === '');
  }

  // console opens the conversation in the console, by a link as people have it:
  // the token stands behind the #, and the console takes it out at once.
  #console(): void {
    const { token, relays, session } = this.options;
    const link = new URL('/', relays.current);
    link.hash = String(new URLSearchParams({ token, session: session.id, chat: this.#feed.chat.shown.conversation }));
    byId('menu').hidePopover();
    void chrome.tabs.create({ url: link.href });
  }

  select(name: TabName): void {
    for (const other of ['terminal', 'chat'] as const) {
      setHidden(other, other !== name);
      setAttribute(`tab-${other}`, 'aria-selected', String(other === name));
      setAttribute(`tab-${other}`, 'tabindex', other === name ? '0' : '-1');
    }
    void chrome.storage.local.set({ tab: name });
    if (name === 'terminal') this.#screen.fit();
    else {
      this.#draw();
      this.#view.shown();
    }
  }

  #listen(): void {
    const { signal } = this.#stop;
    const on = (id: string, name: string, run: (event: Event) => void) => byId(id).addEventListener(name, run, { signal });
    for (const name of ['terminal', 'chat'] as const) on(`tab-${name}`, 'click', () => this.select(name));
    on('tabs', 'keydown', (event) => this.#arrows(event as KeyboardEvent));
    on('card-button', 'click', () => this.#terminal.start());
    on('lost-anew', 'click', () => this.#terminal.start());
    document.addEventListener('keydown', (event) => this.#key(event), { signal });
    on('chat-text', 'input', () => this.#feed.chat.hold(this.#drafts.writing));
    on('chat-text', 'keydown', (event) => {
      const key = event as KeyboardEvent;
      if (key.key !== 'Enter' || key.shiftKey || key.isComposing) return;
      event.preventDefault();
      byId('composer', HTMLFormElement).requestSubmit();
    });
    on('composer', 'submit', (event) => {
      event.preventDefault();
      const message = this.#drafts.take();
      this.#feed.chat.hold(this.#drafts.writing);
      if (message === '') return;
      void this.#feed.say(message);
    });
    on('chat-stop', 'click', () => void this.#feed.halt());
    on('chat-clear', 'click', () => void this.#feed.clear());
    on('chat-console', 'click', () => this.#console());
    on('chat', 'keydown', (event) => {
      if ((event as KeyboardEvent).key === 'F6' && this.#view.focusQuestion()) event.preventDefault();
    });
    const ticker = setInterval(() => this.#view.tick(Date.now()), 1_000);
    signal.addEventListener('abort', () => clearInterval(ticker));
    window.addEventListener('offline', () => this.#status(), { signal });
    window.addEventListener('online', () => {
      this.#status();
      this.#feed.now();
      this.#terminal.now();
    }, { signal });
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
    this.#isConnected = connected;
    this.#status();
    // Only now may the arrow go that points to where we are.
    if (connected) chrome.runtime.sendMessage({ type: 'sidebarOpened' }).catch(() => undefined);
  }

  // A connection may outlive a short loss of the network.
  #status(): void {
    const connected = this.#isConnected && navigator.onLine;
    const status = byId('status');
    status.dataset.tone = connected ? 'good' : 'busy';
    setText('status-text', connected ? 'Connected' : navigator.onLine ? 'Reconnecting' : 'Offline');
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
