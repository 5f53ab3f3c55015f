// What the chat shows: the entries that were pushed, in the browser tab that each
// is about, and what was sent and isn't among them yet. Pure.

import type { Item } from '@fairlead/core';

// A Question is what an agent asks: whether it may use a tool.
export type Question = Extract<Item, { kind: 'asked' }>;

export interface Entry {
  id: number;
  role: string; // 'user' or 'agent'
  type?: string;
  message?: string;
  text?: string;
  tool?: string;
  input?: string;
  error?: string;
  reason?: string;
  tabId?: number | null;

  // Of a question, and of its end.
  requestId?: string;
  revision?: number;
  expiresAt?: string;
  cut?: boolean; // the input isn't all that the tool is to do
  outcome?: string; // 'allowed', 'denied', 'timeout' or 'withdrawn'
  by?: string; // the id of who has answered
}

// A BrowserTab is one of the sandbox's Chromium, or one that was talked about.
export interface BrowserTab {
  id: number;
  url: string;
  title: string;
  conversationId?: string; // for other clients
}

export interface Standing {
  agentStatus?: string; // of the active tab: 'idle', 'processing' or 'hung'
  activeTabId?: number | null;
  tabs?: { id: number; agentStatus: string }[]; // in which something runs
  availableFrom?: number; // the oldest entry that is held: what is older was cleared
  tabsRevision?: number; // another one once tabs were opened, closed or switched
}

// How a message stands that isn't among the entries yet. Lost: nobody knows
// whether it arrived.
export type Sending = 'sending' | 'working' | 'queued' | 'refused' | 'lost';

export interface Row {
  readonly key: string;
  readonly kind: 'user' | 'text' | 'tool' | 'error' | 'note' | 'question';
  readonly id?: number; // of its entry
  text: string;
  question?: Question;
  part?: boolean; // of what it asks for only a part is known here
  tool?: string;
  live?: boolean; // more of it comes
  sending?: Sending;
  note?: string;
  name?: string; // under which it is sent, and sent again: it runs once
}

// Unsent is a message that nobody has, and the tab that it is for.
export interface Unsent {
  tab: number;
  row: Row;
}

export interface Tab {
  readonly id: number;
  rows: Row[];
  working: boolean;
  hung: boolean;
  unread: boolean;
  cut: boolean; // older rows aren't shown any more
  listed: boolean | undefined; // by the sandbox; undefined: it wasn't asked since this tab was heard of
  title: string; // as it was last listed
  url: string;
  conversation: string; // '': none yet
}

// A Chip stands for a tab in the row above the conversation.
export interface Chip {
  id: number;
  title: string;
  url: string;
  shown: boolean;
  front: boolean; // the sandbox's browser shows it
  news: '' | 'busy' | 'asks' | 'unread';
}

const mostRows = 500;
const mostTabs = 64;

export class Conversations {
  readonly #tabs = new Map<number, Tab>();
  #mark = 0;
  #sent = 0;
  #active = 0;
  #revision: number | undefined; // of the list of tabs
  #shown = 0;
  #held = false;

  // mark is the first id that hasn't come.
  get mark(): number {
    return this.#mark;
  }

  // active is the tab that the sandbox's browser shows.
  get active(): number {
    return this.#active;
  }

  get shown(): Tab {
    return this.tab(this.#shown);
  }

  tab(id: number): Tab {
    let tab = this.#tabs.get(id);
    if (tab === undefined) {
      tab = { id, rows: [], working: false, hung: false, unread: false, cut: false, listed: undefined, title: '', url: '', conversation: '' };
      this.#tabs.set(id, tab);
      this.#drop();
    }
    return tab;
  }

  // thinking says that the dots are to be seen.
  thinking(tab: Tab): boolean {
    return tab.working || tab.rows.some(({ sending }) => sending === 'sending' || sending === 'working');
  }

  // taken says that what the dots stand for has arrived.
  taken(tab: Tab): boolean {
    return tab.working || tab.rows.some(({ sending }) => sending === 'working');
  }

  show(id: number): void {
    this.#shown = id;
    this.tab(id).unread = false;
  }

  // hold keeps the tab that is shown while the person writes: what she sends is for
  // that one, whichever becomes active meanwhile.
  hold(on: boolean): void {
    this.#held = on;
  }

  // list takes the sandbox's tabs. What it doesn't list any more keeps its name.
  list(all: BrowserTab[]): void {
    for (const tab of this.#tabs.values()) tab.listed = false;
    for (const { id, title, url, conversationId = '' } of all.slice(0, mostTabs)) {
      Object.assign(this.tab(id), { listed: true, title, url, conversation: conversationId });
    }
  }

  // chips are the tabs that there are, that something was said in, and the one that
  // is shown, by their numbers: none goes because another list is on its way.
  chips(): Chip[] {
    const all = [...this.#tabs.values()].filter((tab) => tab.id === this.#shown || (tab.id > 0 && (tab.listed === true || tab.rows.length > 0 || tab.working)));
    return all.sort((a, b) => a.id - b.id).map((tab) => ({
      id: tab.id, title: tab.title, url: tab.url, shown: tab.id === this.#shown, front: tab.id === this.#active, news: this.#news(tab),
    }));
  }

  #news(tab: Tab): Chip['news'] {
    if (tab.id !== this.#shown && asks(tab) !== undefined) return 'asks';
    return this.thinking(tab) ? 'busy' : tab.unread ? 'unread' : '';
  }

  // knows says whether the sandbox was asked about all tabs that were told of.
  get knows(): boolean {
    return [...this.#tabs.values()].every((tab) => tab.listed !== undefined || tab.id === 0);
  }

  // elsewhere is a tab that isn't shown and in which the agent asks something.
  get elsewhere(): Tab | undefined {
    return [...this.#tabs.values()].find((tab) => tab.id !== this.#shown && asks(tab) !== undefined);
  }

  // of is the tab that has a conversation, as it was listed.
  of(conversation: string): Tab | undefined {
    return [...this.#tabs.values()].find((tab) => tab.conversation === conversation);
  }

  // unsent are the messages that nobody has, each with its tab, and restore brings
  // those back that another connection has left.
  get unsent(): Unsent[] {
    const waits = ({ sending }: Row) => sending === 'sending' || sending === 'refused' || sending === 'lost';
    return [...this.#tabs.values()].flatMap(({ id, rows }) => rows.filter(waits).map((row) => ({ tab: id, row })));
  }

  restore(unsent: Unsent[]): void {
    for (const { tab, row } of unsent) {
      const fate: Pick<Row, 'sending' | 'note'> = row.sending === 'refused' ? { sending: 'refused', note: row.note ?? '' } : { sending: 'lost', note: unknown };
      this.tab(tab).rows.push({ ...row, ...fate, key: `sent-${++this.#sent}` });
    }
  }

  // state takes how things stand, and says whether the browser's tabs are others now.
  state({ agentStatus, activeTabId, tabs, availableFrom = 0, tabsRevision }: Standing): boolean {
    const id = activeTabId ?? 0;
    const moved = id !== this.#active;
    this.#active = id;
    if (moved && !this.#held) this.show(id);
    this.tab(id);
    const status = new Map(tabs?.map((tab) => [tab.id, tab.agentStatus]));
    if (agentStatus !== undefined) status.set(id, agentStatus);
    for (const tab of this.#tabs.values()) {
      if (tabs !== undefined || status.has(tab.id)) this.#stand(tab, status.get(tab.id) ?? 'idle');
      tab.rows = tab.rows.filter((row) => row.id === undefined || row.id >= availableFrom);
    }
    const listed = tabsRevision !== undefined && tabsRevision !== this.#revision;
    this.#revision = tabsRevision;
    return moved || listed;
  }

  #stand(tab: Tab, status: string): void {
    tab.working = status === 'processing' || status === 'hung';
    tab.hung = status === 'hung';
    if (!tab.working) this.#settle(tab);
  }

  // gap: entries are missing, which are held no longer.
  gap(): void {
    for (const tab of this.#tabs.values()) tab.cut = true;
  }

  // entry takes one that was pushed. One that came before is let be: a stream that
  // was lost may say a thing twice.
  entry(entry: Entry): void {
    if (!Number.isSafeInteger(entry.id) || entry.id < this.#mark) return;
    this.#mark = entry.id + 1;
    const tab = this.tab(entry.tabId ?? 0);
    if (entry.role === 'user') this.#heard(tab, entry);
    else this.#agent(tab, entry);
    if (tab.id !== this.#shown) tab.unread = true;
    if (tab.rows.length > mostRows) {
      tab.rows.splice(0, tab.rows.length - mostRows);
      tab.cut = true;
    }
  }

  // say shows a message at once, before anybody has it.
  // name is what it is sent under.
  say(text: string, name: string): Row {
    const row: Row = { key: `sent-${++this.#sent}`, kind: 'user', text, sending: 'sending', name };
    this.shown.rows.push(row);
    return row;
  }

  answered(row: Row, sending: Sending, note = ''): void {
    if (row.sending === undefined) return; // its entry was faster
    row.sending = sending;
    row.note = note;
  }

  // take removes a message that didn't arrive, to be sent again.
  take(row: Row): void {
    for (const tab of this.#tabs.values()) tab.rows = tab.rows.filter((other) => other !== row);
  }

  // clear empties a tab, as the sandbox has.
  clear(tab: Tab): void {
    tab.rows = tab.rows.filter(({ sending }) => sending !== undefined);
    tab.cut = tab.unread = false;
  }

  // The entry of a message takes the place of what was shown before.
  #heard(tab: Tab, { id, message = '' }: Entry): void {
    const early = [tab, ...this.#tabs.values()].flatMap(({ rows }) => rows).find((row) => row.sending !== undefined && row.text.trim() === message.trim());
    if (early !== undefined) this.take(early);
    this.#end(tab);
    tab.rows.push({ key: String(id), id, kind: 'user', text: message });
    if (early?.sending === 'sending' || early?.sending === 'working') tab.working = true; // until the agent says so itself
  }

  #agent(tab: Tab, entry: Entry): void {
    const { id, type, text = '', tool = '', input = '', error = '', reason = '' } = entry;
    const key = { key: String(id), id };
    switch (type) {
      case 'agent_start':
        tab.working = true;
        return;
      case 'text_delta':
        return this.#grow(tab, key, text);
      case 'text':
      case 'result':
        return this.#whole(tab, key, text);
      case 'tool_use':
        this.#end(tab);
        tab.rows.push({ ...key, kind: 'tool', tool, text: input });
        return;
      case 'agent_done':
        return this.#done(tab);
      case 'agent_error':
        this.#done(tab);
        tab.rows.push({ ...key, kind: 'error', text: error });
        return;
      case 'security_event':
        tab.rows.push({ ...key, kind: 'note', text: reason === '' ? 'Something on the page was held back.' : reason });
        return;
      case 'question':
        this.#end(tab);
        tab.rows.push({ ...key, kind: 'question', tool, text: input, question: questionOf(entry), ...(entry.cut === true ? { part: true } : {}) });
        return;
      case 'answered':
        return settle(tab, entry);
    }
  }

  #grow(tab: Tab, key: { key: string; id: number }, text: string): void {
    const last = tab.rows.at(-1);
    if (last?.live === true) last.text += text;
    else tab.rows.push({ ...key, kind: 'text', text, live: true });
  }

  // The whole text takes the place of its parts, and comes again as the result.
  #whole(tab: Tab, key: { key: string; id: number }, text: string): void {
    if (text === '') return;
    const last = tab.rows.filter(({ kind }) => kind === 'text' || kind === 'user').at(-1);
    if (last?.live === true) last.text = text;
    else if (last?.kind !== 'text' || last.text !== text) tab.rows.push({ ...key, kind: 'text', text });
    this.#end(tab);
  }

  #end(tab: Tab): void {
    for (const row of tab.rows) delete row.live;
  }

  #done(tab: Tab): void {
    this.#end(tab);
    for (const row of tab.rows) if (row.question?.state === 'open') row.question = { ...row.question, state: 'cancelled' }; // nobody waits for its answer
    tab.working = tab.hung = false;
    this.#settle(tab);
  }

  // What counted as being worked on isn't any more.
  #settle(tab: Tab): void {
    for (const row of tab.rows) if (row.sending === 'working') delete row.sending;
  }

  #drop(): void {
    for (const tab of this.#tabs.values()) {
      if (this.#tabs.size <= mostTabs) return;
      if (tab.id !== this.#shown && tab.id !== this.#active && !this.thinking(tab)) this.#tabs.delete(tab.id);
    }
  }
}

// unknown is what is said of a message that may have arrived.
export const unknown = 'Nobody knows whether this arrived';

// asks is the first question of a tab that is open.
export const asks = (tab: Tab): Question | undefined => tab.rows.find(({ question }) => question?.state === 'open')?.question;

// questionOf reads a question. What the tool is to do is a command, or JSON.
function questionOf({ requestId = '', tool = '', input = '', revision = 1, expiresAt }: Entry): Question {
  return { kind: 'asked', id: requestId, tool, input: inputOf(tool, input), revision, state: 'open', ...(expiresAt === undefined ? {} : { expiresAt }) };
}

function inputOf(tool: string, input: string): unknown {
  if (tool !== 'Bash') {
    try {
      const value: unknown = JSON.parse(input);
      if (typeof value === 'object' && value !== null) return value;
    } catch {
      // A text, as it is.
    }
  }
  return { command: input };
}

const states: Record<string, Question['state']> = { allowed: 'decided', denied: 'decided', timeout: 'timeout' };

// settle notes what became of a question.
function settle(tab: Tab, { requestId = '', outcome = '', by = '' }: Entry): void {
  const state = states[outcome] ?? 'cancelled';
  const answer = state === 'decided' && by !== '' ? { answer: { by, decision: outcome === 'allowed' ? 'allow_once' : 'deny' } } : {};
  for (const row of tab.rows) {
    if (row.question?.id === requestId && row.question.state === 'open') row.question = { ...row.question, state, ...answer };
  }
}
