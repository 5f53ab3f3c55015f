// The panel beside the terminal in which people talk with coding agents: the list
// of conversations, one of them, and where one writes.

import { Chats, fits, fold, isEvent, Queue, read, subscribed, type ChatFrame, type ChatOptions, type Conversation, type Image, type Item, type Outgoing, type RunStateFrame, type Session } from '@fairlead/core';
import { byId, h, keyed, setAttribute, setHidden, setText } from '../ui/dom.ts';
import { hint } from '../ui/ask.ts';
import { messageOf } from '../ui/format.ts';
import type { SidePanel } from '../ui/side.ts';
import { tab, unsent } from '../ui/storage.ts';
import { visible } from '../ui/visible.ts';
import { ChatAPI, type Provider } from './api.ts';
import { Composer } from './composer.ts';
import { Elsewhere, type Terminals } from './elsewhere.ts';
import { mayStop, newsOf, none, noteOf, sendOf, whyWaits, type ChatModel, type Talk } from './model.ts';
import { titleOf, type Answer } from './question.ts';
import { Rows, type Row } from './rows.ts';
import { SidePanelTabs, words } from './sidepanel.ts';

export interface ChatPanelOptions {
  you: string;
  mayTalk: boolean;
  mayApprove: boolean;
  name(id: string): string; // of a person
  asks(questions: ReadonlySet<string>, focus: () => boolean): void; // these are shown; focus leads to one that is open
  terminals: Terminals;
}

// So many rows of the history are shown.
const pageRows = 200;

export class ChatPanel implements SidePanel {
  readonly #api: ChatAPI;
  readonly #chats: Chats;
  readonly #rows: Rows;
  readonly #composer: Composer;
  readonly #elsewhere: Elsewhere;
  readonly #sidePanel: SidePanelTabs;
  readonly #list = byId('chat-list');
  #talks: Talk[] = [];
  #providers: Provider[] = [];
  #model: ChatModel;
  readonly #queue: Queue;
  readonly #followed = new Set<string>(); // conversations
  readonly #told = new Set<string>(); // questions that a screen reader was told of
  #waiting: readonly Outgoing[] = [];
  #started = false;
  #isOpen = false;
  #asked = ''; // the ids of the questions that are shown
  #frame: number | undefined; // of a draw that is to come
  #ticker: number | undefined;

  constructor(private readonly session: Session, private readonly options: ChatPanelOptions) {
    this.#model = { ...none, ...options };
    this.#api = new ChatAPI(session);
    this.#chats = new Chats(session, {
      frame: (frame) => {
        this.#queue.frame(frame);
        this.#take(frame);
      },
      reach: (reach) => {
        if (reach !== 'open') this.#queue.lost();
        this.#change({ reach });
      },
      outbox: (waiting) => {
        this.#waiting = waiting;
        this.#queue.outbox(waiting);
      },
    });
    const kept = unsent(options.you, session.id);
    this.#queue = new Queue({ you: options.you, store: { get: () => tab.get(kept), set: (text) => tab.set(kept, text) }, clock: session.platform.clock }, {
      send: (message) => this.#chats.send(message),
      withdraw: (name) => this.#chats.withdraw(name),
      changed: () => {
        this.#follow();
        this.#later();
      },
    });
    this.#rows = new Rows(byId('chat-rows'), {
      answer: (answer) => this.#answer(answer),
      retry: (message) => {
        this.#drop(message);
        this.#queue.add(named(message, session));
      },
      drop: (message) => this.#drop(message),
    });
    this.#composer = new Composer({
      send: (content, images, options) => this.#send(content, images, options),
      upload: (file) => this.#api.upload(file),
      stop: () => this.#chats.say({ type: 'chat.abort', sessionId: this.#model.talk?.id }),
      askControl: () => this.#chats.say({ type: 'chat.request_control', sessionId: this.#model.talk?.id }),
    });
    this.#elsewhere = new Elsewhere(options.terminals, () => this.#focus());
    this.#sidePanel = new SidePanelTabs(session, () => this.#later());
    byId('chat-aside').addEventListener('click', () => {
      const { talk } = this.#model;
      if (talk !== undefined) void this.#sidePanel.show(talk.id).then((shown) => hint(words[shown]));
    });
    byId('chat-new', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#create();
    });
    byId('chat-back').addEventListener('click', () => {
      const left = this.#model.talk?.id;
      this.#show(undefined);
      const entry = [...this.#list.querySelectorAll('button')].find(({ dataset }) => dataset.testid === `chat-${left}`);
      (entry ?? byId('chat-close', HTMLButtonElement)).focus();
    });
    byId('chat-grant').addEventListener('click', () => this.#grant());
    byId('chat').addEventListener('keydown', (event) => {
      if (event.key !== 'F6' || (event.target instanceof Element && event.target.closest('.chat-asked') !== null)) return;
      if (this.#rows.focusQuestion()) event.preventDefault();
    });
    window.addEventListener('online', () => this.#chats.now());
    if (this.#queue.conversations.size > 0) this.#start(); // the page was left before it was sent
  }

  #start(): void {
    if (this.#started) return;
    this.#started = true;
    this.#follow();
    this.#chats.start();
  }

  opened(): void {
    this.#start();
    this.#rows.shown();
    this.#ticker = window.setInterval(() => this.#rows.tick(Date.now()), 1_000);
    void this.#readList();
    this.#isOpen = true;
    const kept = tab.get('chat');
    if (kept !== null && kept !== '') this.#showById(kept);
    this.#draw();
    this.#focus();
  }

  // open shows a conversation, of which perhaps no more than the id is known.
  open(id: string): void {
    this.#showById(id);
    this.#focus();
  }

  #showById(id: string): void {
    if (this.#model.talk?.id === id) return;
    this.#show(this.#talks.find((talk) => talk.id === id) ?? { id, provider: '', title: '', lastActivity: '', running: false });
  }

  // focus leads to where one writes, or to what one may do instead.
  #focus(): void {
    if (this.#model.talk === undefined) byId('chat-close', HTMLButtonElement).focus();
    else if (this.#model.mayTalk) this.#composer.focus();
    else byId('chat-scroll').focus();
  }

  // renamed has the terminal named anew where the conversation goes on: often the
  // page hears where that is before it knows the terminal.
  renamed(): void {
    if (this.#elsewhere.of(this.#model.talk?.id ?? '') !== '') this.#later();
  }

  closed(): void {
    this.#isOpen = false;
    clearInterval(this.#ticker);
    this.#ask();
  }

  // show follows one conversation, or shows the list.
  #show(talk: Talk | undefined): void {
    this.#model = { ...none, ...this.options, reach: this.#chats.reach, talk };
    tab.set('chat', talk?.id ?? '');
    this.#composer.turn(talk?.id ?? '');
    if (talk !== undefined) this.#followed.delete(talk.id); // from its beginning
    this.#follow();
    if (talk !== undefined && talk.id !== '') {
      void this.#readHistory(talk.id);
      void this.#sidePanel.read();
      this.#composer.offer(this.#providers.find(({ provider }) => provider === talk.provider));
    }
    this.#draw();
  }

  // follow follows what is shown, and what something is still to be sent to.
  #follow(): void {
    const wanted = this.#queue.conversations;
    if (this.#model.talk !== undefined && this.#model.talk.id !== '') wanted.add(this.#model.talk.id);
    for (const id of this.#followed) {
      if (wanted.has(id)) continue;
      this.#followed.delete(id);
      this.#chats.unfollow(id);
    }
    for (const id of wanted) {
      if (this.#followed.has(id)) continue;
      this.#followed.add(id);
      this.#chats.follow(id, () => (this.#model.talk?.id === id ? this.#model.conversation.mark : this.#queue.mark(id)));
    }
  }

  #drop({ name }: Outgoing): void {
    this.#chats.withdraw(name);
    this.#queue.drop(name);
  }

  #change(part: Partial<ChatModel>): void {
    this.#model = { ...this.#model, ...part };
    this.#later();
  }

  #take(frame: ChatFrame): void {
    if (frame.kind === 'session_upserted') return this.#upserted(frame.sessionId, frame.provider, frame.session);
    if (frame.kind === 'run_state') this.#runs(frame);
    const { talk, conversation } = this.#model;
    if (talk === undefined || !('sessionId' in frame) || frame.sessionId !== talk.id) {
      if (frame.kind === 'chat_subscribed' && this.#followed.has(frame.sessionId)) void this.#readHistory(frame.sessionId);
      return;
    }
    if (isEvent(frame)) return this.#went(fold(conversation, frame));
    switch (frame.kind) {
      case 'chat_subscribed':
        this.#rows.unanswered();
        return this.#went(subscribed(conversation, frame));
      case 'control_state':
        return this.#change({ control: frame });
      case 'presence':
        return this.#change({ presence: frame });
      case 'protocol_error':
        if (frame.clientMessageId !== undefined) return;
        this.#rows.unanswered();
        this.#later();
        setText('chat-problem', visible(frame.error));
    }
  }

  #went(conversation: Conversation): void {
    const over = this.#model.conversation.running && !conversation.running;
    this.#change({ conversation });
    if (conversation.missing || over) void this.#readHistory(this.#model.talk?.id ?? '');
  }

  #upserted(id: string, provider: string, { summary, lastActivity }: { summary: string; lastActivity: string }): void {
    const known = this.#talks.find((talk) => talk.id === id);
    const talk = { id, provider, title: summary, lastActivity, running: known?.running ?? false };
    this.#talks = [talk, ...this.#talks.filter((other) => other.id !== id)];
    if (this.#model.talk?.id === id) this.#model = { ...this.#model, talk };
    if (this.#model.talk?.id === id && this.#elsewhere.of(id) !== '') void this.#readHistory(id); // of what is said there no events come
    this.#later();
  }

  #runs({ sessionId: id, state, terminal }: RunStateFrame): void {
    this.#talks = this.#talks.map((talk) => (talk.id === id ? { ...talk, running: state !== 'idle' } : talk));
    if (this.#elsewhere.is(id, terminal) && this.#model.talk?.id === id) void this.#readHistory(id);
    this.#later();
  }

  async #readList(): Promise<void> {
    try {
      [this.#talks, this.#providers] = await Promise.all([this.#api.recent(), this.#api.providers()]);
      setText('chat-problem', '');
    } catch (error) {
      setText('chat-problem', messageOf(error));
      return;
    }
    byId('chat-provider', HTMLSelectElement).replaceChildren(...this.#providers.map(({ provider }) => h('option', { value: provider }, provider)));
    const { talk } = this.#model;
    const found = this.#talks.find(({ id }) => id === talk?.id);
    if (found !== undefined) this.#model = { ...this.#model, talk: found };
    this.#composer.offer(this.#providers.find(({ provider }) => provider === found?.provider));
    this.#later();
  }

  async #readHistory(id: string): Promise<void> {
    if (id === '') return;
    try {
      const { messages } = await this.#api.messages(id, pageRows);
      this.#queue.known(messages);
      if (this.#model.talk?.id === id) this.#change({ conversation: read(this.#model.conversation, messages) });
    } catch (error) {
      if (this.#model.talk?.id === id) setText('chat-problem', messageOf(error));
    }
  }

  async #create(): Promise<void> {
    const provider = byId('chat-provider', HTMLSelectElement).value;
    const button = byId('chat-create', HTMLButtonElement);
    button.disabled = true;
    try {
      const id = await this.#api.create(provider, '.', '');
      this.#show({ id, provider, title: '', lastActivity: new Date().toISOString(), running: false });
      this.#composer.focus();
    } catch (error) {
      setText('chat-problem', messageOf(error));
    } finally {
      button.disabled = false;
    }
  }

  // send sends a message when its turn comes, or says why it can't be.
  #send(content: string, images: Image[], options: ChatOptions): string {
    const { talk } = this.#model;
    if (talk === undefined) return 'No conversation is open.';
    const message: Outgoing = { name: this.session.platform.uuid(), conversation: talk.id, content, images, options };
    if (!fits(message)) return 'That is too long: a message may have 1 MiB, with its images.';
    this.#queue.add(message);
    return '';
  }

  #answer({ question, allow, updatedInput, message, remember }: Answer): boolean {
    return this.#chats.say({
      type: 'chat.permission-response', requestId: question.id, allow, sessionId: this.#model.talk?.id,
      ...(updatedInput === undefined ? {} : { updatedInput }), ...(message === undefined ? {} : { message }),
      ...(remember === undefined ? {} : { rememberEntry: remember }),
    });
  }

  #grant(): void {
    const to = this.#model.control?.requests.find((id) => id !== this.options.you);
    this.#chats.say({ type: 'chat.grant_control', sessionId: this.#model.talk?.id, to });
  }

  #view(): ChatModel {
    const of = (all: readonly Outgoing[]) => all.filter(({ conversation }) => conversation === this.#model.talk?.id);
    return { ...this.#model, waiting: of(this.#waiting), queued: of(this.#queue.held), terminal: this.#elsewhere.of(this.#model.talk?.id ?? '') };
  }

  // later draws with the next picture: deltas come many a second.
  #later(): void {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = undefined;
      this.#draw();
    });
  }

  #draw(): void {
    const m = this.#view();
    const { talk, conversation } = m;
    setHidden('chat-talks', talk !== undefined);
    setHidden('chat-talk', talk === undefined);
    setText('chat-where', talk === undefined ? '' : visible(talk.title || talk.provider));
    setHidden('chat-back', talk === undefined);
    setHidden('chat-aside', talk === undefined || !this.#sidePanel.has(talk.id));
    setHidden('chat-new', !this.options.mayTalk);
    this.#drawList();
    this.#ask();
    if (talk === undefined) return;
    const name = (id: string) => this.#name(id);
    const why = (queued: Outgoing) => `${visible(whyWaits(m, name))}${this.#queue.keeps(queued.name) ? '' : '. It is too large to be kept if this page is reloaded'}`;
    const rows: Row[] = [...conversation.items.filter(hasRow), ...m.waiting.map((message) => outgoing(message, '')), ...m.queued.map((message) => outgoing(message, why(message)))];
    this.#rows.draw({ rows, you: m.you, mayApprove: m.mayApprove, name });
    this.#tell(m);
    setHidden('chat-empty', rows.length > 0);
    setText('chat-note', noteOf(m, (id) => visible(name(id))));
    setHidden('chat-grant', !(m.control?.controller === m.you && m.control.requests.some((id) => id !== m.you)));
    setAttribute('chat-talk', 'data-running', String(conversation.running));
    setAttribute('chat-scroll', 'aria-busy', String(conversation.running)); // a turn is read out when it is over
    const others = m.presence === undefined ? '' : `${m.presence.count} here`;
    setText('chat-viewers', others);
    this.#elsewhere.draw(m);
    this.#composer.draw(sendOf(m), mayStop(m), m.mayTalk);
  }

  #name(id: string): string {
    return this.#model.presence?.viewers.find(({ user_id: user }) => user === id)?.name || this.options.name(id);
  }

  // tell has a screen reader say what is asked, once.
  #tell({ conversation, mayApprove }: ChatModel): void {
    const open = conversation.items.filter((item) => item.kind === 'asked').filter(({ state }) => state === 'open');
    if (!this.#isOpen || open.length === 0) return setText('chat-news', '');
    for (const item of open) {
      if (this.#told.has(item.id)) continue;
      this.#told.add(item.id);
      setText('chat-news', newsOf(item, titleOf(item), mayApprove));
    }
  }

  // ask says which questions are shown here: they are not asked elsewhere.
  #ask(): void {
    const items = this.#isOpen && this.#model.talk !== undefined ? this.#model.conversation.items : [];
    const ids = items.filter(({ kind }) => kind === 'asked').map(({ id }) => id);
    if (ids.join() === this.#asked) return;
    this.#asked = ids.join();
    this.options.asks(new Set(ids), () => this.#rows.focusQuestion());
  }

  #drawList(): void {
    keyed(this.#list, this.#talks, ({ id }) => id, ({ id }) => {
      const button = h('button', { type: 'button', class: 'chat-entry', 'data-testid': `chat-${id}` }, h('span', { class: 'chat-title' }), h('span', { class: 'fine' }));
      button.addEventListener('click', () => {
        this.#show(this.#talks.find((talk) => talk.id === id));
        this.#focus();
      });
      return h('li', {}, button);
    }, (element, talk) => {
      setAttribute(element, 'data-running', String(talk.running));
      setText(element.querySelector('.chat-title') ?? element, visible(talk.title || 'Untitled'));
      setText(element.querySelector('.fine') ?? element, `${visible(talk.provider)}${talk.running ? ', at work' : ''}`);
    });
    setHidden('chat-none', this.#talks.length > 0);
  }
}

// hasRow: that a run has ended well need not be said.
const hasRow = (item: Item): boolean => item.kind !== 'ended' || !item.success;

function outgoing(message: Outgoing, waits: string): Row {
  return { kind: 'outgoing', id: message.name, message, waits };
}

// named is the same message under another name: the old one was refused for good.
function named(message: Outgoing, session: Session): Outgoing {
  const { content, images, options, conversation } = message;
  return { name: session.platform.uuid(), content, images, options, conversation };
}
