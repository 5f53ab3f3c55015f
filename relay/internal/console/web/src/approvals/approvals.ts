// What a session waits for somebody's approval of, and how that was decided, as
// the sandbox tells it. Pure. Times are milliseconds of this page's monotonic
// clock: the sandbox alone says when an approval expires, and its clock and this
// one need not agree.

import { visible } from '../ui/visible.ts';
import { reading } from './punycode.ts';
import { toolView, type ToolView } from './tool.ts';

export type Decision = 'allow_once' | 'allow_always' | 'deny' | 'deny_always';

export interface Approval {
  id: string;
  revision: number;
  kind: string; // 'egress', 'broker' or 'tool'
  pty_id?: string;
  host?: string; // egress and broker
  port?: number;
  secret?: string; // broker: its name
  state: string; // 'pending', 'decided', 'expired' or 'cancelled'
  conversation_id?: string; // tool: where it is asked
  tool?: string;
  input?: unknown; // tool, while it is pending: what it is to do; absent if that is too long
  input_sha256?: string;
  remember?: string; // tool: what was allowed with it
  decision?: Decision;
  user_id?: string; // who decided
  asked_at: number; // Unix milliseconds
  ends_at: number; // Unix milliseconds: when it expires, or was over; 0: it waits without limit
  left_ms?: number;
}

export interface Opened {
  gap?: boolean; // earlier events are missing
  pending: Approval[];
  more?: boolean; // the list has more that waits, or more of it
}

// Words are what a decision about a tool says beside yes or no.
export interface Words {
  message?: string; // of a denial, for the coding agent
  remember?: string; // what needs no question any more
}

// A Choice is what the person of this page decided.
export interface Choice {
  decision: Decision;
  words: Words;
  key: string; // Idempotency-Key
  state: 'sending' | 'unsent' | 'refused'; // unsent: nothing can be decided now
  text: string; // why not yet, or why not
}

export interface Entry {
  approval: Approval;
  order: number; // of arrival here
  expires: number | null; // pending: when time is up; null: never
  overAt: number | null; // when this page saw it end; null where it had ended before
  gone: boolean; // the sandbox knows it no longer
  choice: Choice | null;
}

export interface Approvals {
  entries: ReadonlyMap<string, Entry>;
  arrived: number;
  undecidable: boolean; // the control plane, which signs decisions, was away at the last try
}

export const none: Approvals = { entries: new Map(), arrived: 0, undecidable: false };

// Entries that are over and kept.
export const mostKept = 100;
export const logged = 20;
// How long a card says how it ended: longer where somebody else decided.
const mineMs = 4_000;
const othersMs = 10_000;

export const pending = (entry: Entry): boolean => entry.approval.state === 'pending' && !entry.gone;

function change(state: Approvals, id: string, update: (entry: Entry) => Entry): Approvals {
  const entry = state.entries.get(id);
  return entry === undefined ? state : { ...state, entries: new Map(state.entries).set(id, update(entry)) };
}

// merge takes an approval as the sandbox told it. An older revision than the
// one that is known changes nothing.
export function merge(state: Approvals, approval: Approval, now: number): Approvals {
  const known = state.entries.get(approval.id);
  if (known !== undefined && known.approval.revision > approval.revision) return state;
  const waits = approval.state === 'pending';
  const had = known !== undefined && known.approval.state === 'pending';
  // The beginning of a stream may lack what a tool is to do.
  const whole = waits && approval.input === undefined && known?.approval.input !== undefined ? { ...approval, input: known.approval.input } : approval;
  const entries = new Map(state.entries).set(approval.id, {
    approval: whole,
    order: known?.order ?? state.arrived,
    expires: waits && approval.ends_at !== 0 ? now + (approval.left_ms ?? 0) : null,
    overAt: waits ? null : had && known.overAt === null ? now : (known?.overAt ?? null),
    gone: waits && (known?.gone ?? false),
    choice: known?.choice ?? null,
  });
  return prune({ ...state, entries, arrived: state.arrived + (known === undefined ? 1 : 0) });
}

// reopen takes what waits as a stream begins.
export function reopen(state: Approvals, { gap, pending: list }: Opened, now: number): Approvals {
  let next = list.reduce((s, approval) => merge(s, approval, now), state);
  if (gap !== true) return next; // the events that follow say what ended meanwhile
  const there = new Set(list.map(({ id }) => id));
  for (const [id, entry] of next.entries) {
    if (pending(entry) && !there.has(id)) next = change(next, id, (e) => ({ ...e, gone: true, overAt: now }));
  }
  return next;
}

function prune(state: Approvals): Approvals {
  const over = [...state.entries.values()].filter((e) => !pending(e)).sort(latestFirst);
  if (over.length <= mostKept) return state;
  const entries = new Map(state.entries);
  for (const { approval } of over.slice(mostKept)) entries.delete(approval.id);
  return { ...state, entries };
}

const latestFirst = (a: Entry, b: Entry) => b.approval.ends_at - a.approval.ends_at || b.order - a.order;

// choose is the person's decision, or the same one again. An answer may have
// been lost on its way: the same decision keeps its key.
export function choose(state: Approvals, id: string, decision: Decision, freshKey: string, words: Words = {}): Approvals {
  return change(state, id, (entry) => {
    const before = entry.choice;
    const same = before?.decision === decision && before.words.message === words.message && before.words.remember === words.remember;
    const key = same && before.state !== 'refused' ? before.key : freshKey;
    return { ...entry, choice: { decision, words, key, state: 'sending', text: '' } };
  });
}

// choiceOf is the choice that waits for an answer under key.
export function choiceOf(state: Approvals, id: string, key: string): Choice | undefined {
  const entry = state.entries.get(id);
  const choice = entry?.choice;
  return entry !== undefined && pending(entry) && choice?.key === key && choice.state === 'sending' ? choice : undefined;
}

export type Problem = 'again' | 'undecidable' | 'refused';

// problemOf says what an answer that isn't a success means for a decision.
export function problemOf(status: number, message: string): Problem {
  if (status === 503 && /control plane/i.test(message)) return 'undecidable';
  return status === 0 || status === 429 || status >= 500 ? 'again' : 'refused';
}

export function explain(state: Approvals, id: string, text: string): Approvals {
  return change(state, id, (entry) => (entry.choice === null ? entry : { ...entry, choice: { ...entry.choice, text } }));
}

export function refuse(state: Approvals, id: string, problem: Problem, text: string): Approvals {
  const next = change(state, id, (entry) =>
    entry.choice === null ? entry : { ...entry, choice: { ...entry.choice, state: problem === 'undecidable' ? 'unsent' : 'refused', text: problem === 'undecidable' ? '' : text } });
  return { ...next, undecidable: problem === 'undecidable' };
}

export const decidable = (state: Approvals): Approvals => (state.undecidable ? { ...state, undecidable: false } : state);

export function countOf(state: Approvals): number {
  let n = 0;
  for (const entry of state.entries.values()) if (pending(entry)) n++;
  return n;
}

// What else the words need.
export interface Naming {
  you: string;
  name(user: string): string;
  terminal(pty: string): string | undefined; // undefined: it is gone
  conversation?(id: string): string | undefined; // its title
}

export interface CardView {
  id: string;
  pending: boolean;
  who: string; // asks
  pty: string; // to open; '' if none
  conversation: string; // to open; '' if none
  what: string;
  host: string; // with the port; or the tool
  tool: ToolView | null; // what a tool is to do
  reading: string; // of the host, '' where that is the same
  left: string;
  part: number; // of the time that is left
  outcome: string; // '' while it is pending
  tone: 'ask' | 'allowed' | 'denied' | 'expired';
  note: string;
  busy: boolean;
}

// cardsOf are those that wait, and for a while those that don't any more: the
// oldest first, each where it has always been.
export function cardsOf(state: Approvals, naming: Naming, now: number, held: (id: string) => boolean): CardView[] {
  return [...state.entries.values()]
    .filter((entry) => pending(entry) || (entry.overAt !== null && (now - entry.overAt < shownMs(entry, naming) || held(entry.approval.id))))
    .sort((a, b) => a.order - b.order)
    .map((entry) => cardOf(state, entry, naming, now));
}

function shownMs({ approval, choice }: Entry, { you }: Naming): number {
  return choice !== null && approval.user_id === you ? mineMs : othersMs;
}

function cardOf(state: Approvals, entry: Entry, naming: Naming, now: number): CardView {
  const { approval, choice, expires } = entry;
  const waits = pending(entry);
  const leftMs = expires === null ? Infinity : Math.max(0, expires - now);
  const all = Math.max(approval.ends_at - approval.asked_at, 1);
  const label = approval.pty_id === undefined ? undefined : naming.terminal(approval.pty_id);
  return {
    id: approval.id,
    pending: waits,
    who: label ?? (approval.kind === 'tool' ? `The coding agent${conversationOf(approval, naming)}` : 'A program'),
    pty: label === undefined ? '' : (approval.pty_id ?? ''),
    conversation: approval.conversation_id ?? '',
    what: whatOf(approval),
    host: subjectOf(approval),
    tool: approval.kind === 'tool' ? viewOf(approval) : null,
    reading: visible(reading(approval.host ?? '') ?? ''),
    left: waits ? leftText(leftMs) : '',
    part: waits && leftMs !== Infinity ? Math.min(1, leftMs / all) : 0,
    outcome: waits ? '' : outcomeOf(entry, naming),
    tone: waits ? 'ask' : toneOf(approval),
    note: waits ? noteOf(state, choice) : '',
    busy: choice?.state === 'sending',
  };
}

// viewOf makes the view of a tool's approval once: it is drawn often.
const views = new WeakMap<Approval, ToolView>();
function viewOf(approval: Approval): ToolView {
  const view = views.get(approval) ?? toolView(approval);
  views.set(approval, view);
  return view;
}

function conversationOf({ conversation_id: id }: Approval, { conversation }: Naming): string {
  if (!id) return '';
  const title = conversation?.(id);
  return ` in ${title === undefined || title === '' ? `conversation ${visible(id).slice(0, 8)}` : `“${visible(title)}”`}`;
}

// subjectOf is what an approval is about, in a word: a host or a tool.
export const subjectOf = (approval: Approval): string => (approval.kind === 'tool' ? visible(approval.tool ?? '') : hostOf(approval));

function whatOf({ kind, secret }: Approval): string {
  if (kind === 'tool') return 'wants to use';
  if (kind === 'broker') return `wants to send the secret ${visible(secret ?? '')} to`;
  return kind === 'egress' ? 'wants to connect to' : 'asks for';
}

// hostOf is the host in full, as the sandbox compares it.
export function hostOf({ host = '', port }: Approval): string {
  const name = visible(host);
  if (!port) return name;
  return name.includes(':') && !name.startsWith('[') ? `[${name}]:${port}` : `${name}:${port}`;
}

export function leftText(ms: number): string {
  if (ms === Infinity) return 'waits without limit';
  const seconds = Math.ceil(ms / 1000);
  if (seconds <= 0) return 'time is up';
  return seconds < 120 ? `${seconds} s` : `${Math.ceil(seconds / 60)} min`;
}

function toneOf({ state, decision }: Approval): CardView['tone'] {
  if (state !== 'decided') return 'expired';
  return decision === 'allow_once' || decision === 'allow_always' ? 'allowed' : 'denied';
}

const deeds: Record<Decision, string> = {
  allow_once: 'allowed it once',
  allow_always: 'allowed it always',
  deny: 'denied it',
  deny_always: 'denied it always',
};

// outcomeOf says who decided and what.
export function outcomeOf({ approval, choice, gone }: Entry, { you, name }: Naming): string {
  if (gone) return 'Nobody waits for this any more';
  if (approval.state === 'cancelled') return choice === null ? 'Not needed any more' : 'Not needed any more: the run ended before your answer came';
  if (approval.state !== 'decided') return choice === null ? 'Expired: denied' : 'Expired before your answer came: denied';
  const deed = (deeds[approval.decision ?? 'deny'] ?? 'decided') + (approval.remember ? `, and ${visible(approval.remember)} from now on` : '');
  if (approval.user_id === you) return `You ${deed}`;
  const who = approval.user_id === undefined ? 'Somebody' : name(approval.user_id);
  return choice === null ? `${who} ${deed}` : `${who} had ${deed} already`;
}

function noteOf({ undecidable }: Approvals, choice: Choice | null): string {
  if (choice?.state === 'sending') return choice.text || 'Sending…';
  if (undecidable) return 'Nothing can be decided: the control plane can’t be reached';
  return choice?.text ?? '';
}

export interface LogLine {
  id: string;
  at: number; // Unix milliseconds
  host: string;
  who: string;
  tone: CardView['tone'];
  outcome: string;
}

// logOf are the last that are over, the latest first.
export function logOf(state: Approvals, naming: Naming): LogLine[] {
  return [...state.entries.values()].filter((e) => !pending(e)).sort(latestFirst).slice(0, logged).map((entry) => {
    const { approval } = entry;
    const label = approval.pty_id === undefined ? undefined : naming.terminal(approval.pty_id);
    const secret = approval.kind === 'broker' ? `${visible(approval.secret ?? '')} → ` : '';
    return { id: approval.id, at: approval.ends_at, host: secret + subjectOf(approval), who: label ?? '', tone: toneOf(approval), outcome: outcomeOf({ ...entry, choice: null }, naming) };
  });
}
