// What the page shows, derived from what is known. Pure; view.ts draws it.

import { agentHolder, atWork, controls, hasEnded, type Connection, type Control, type TerminalInfo } from '@fairlead/core';
import { agentLabel, programOf, turnText, type AgentView } from '../agents/agents.ts';
import type { ShareView } from '../terminal/share.ts';
import { nameOf } from '../terminal/words.ts';
import { visible } from '../ui/visible.ts';

export type Tone = 'good' | 'busy' | 'bad' | 'idle';

export interface Tab {
  id: string;
  label: string;
  hint: string;
  active: boolean;
  ended: boolean;
  unseen: boolean;
  waiting: boolean; // its program starts with the first key
  mine: boolean;
  egress: string; // '' where it connects to any host
  page: boolean; // a plugin's, which nobody closes here
}

export interface Person {
  id: string;
  name: string;
  note: string;
  you: boolean;
  controls: boolean;
  mayReceive: boolean; // by the viewer of this page, who has control
}

export type ControlKind = 'unknown' | 'free' | 'you' | 'other' | 'agent' | 'away';

export interface ControlView {
  kind: ControlKind;
  id: string;
  name: string; // whose, as text begins; empty: nobody's
  text: string;
  detail: string; // changes by the second: not read aloud
  action: 'take' | 'request' | 'cancel' | 'release' | null;
  takeBack: boolean; // from its holder
  enabled: boolean;
  viewOnly: boolean;
}

export type BannerAction = 'retry' | 'new-terminal';

// An outage shorter than this is not worth a word: nothing was lost.
export const outageMs = 700;
// Less than this leaves too soon to be worth a progress bar.
const progressBytes = 64 << 10;

export interface Tools {
  earlier: boolean; // there is output that the screen has never had
  mayRecord: boolean;
  recording: boolean;
  share: ShareView;
  typeSize: number; // pixels
}

export interface Banner {
  kind: 'lost' | 'waiting' | 'over' | 'ended';
  text: string;
  detail: string; // changes by the second: not read aloud
  action: BannerAction | null;
  kept: string; // what was typed and waits
}

export interface Model {
  status: { tone: Tone; text: string };
  tabs: Tab[];
  mayCreate: boolean; // terminals, and close them
  people: { count: number; list: Person[] };
  control: ControlView;
  agent: AgentView;
  requests: { id: string; name: string }[]; // for the controller to answer
  banner: Banner | null;
  live: boolean; // what is done now reaches the terminal
  stale: boolean; // the screen may be behind
  tools: Tools;
  held: boolean; // what was typed last may be the beginning of a secret
  progress: number | null; // of a paste, in percent
  detail: string;
  title: string;
}

const seconds = (until: number, now: number) => Math.max(0, Math.ceil((until - now) / 1000));

export function statusOf(c: Connection): Model['status'] {
  switch (c.phase.name) {
    case 'attached':
      return c.waiting === null ? { tone: 'good', text: 'Connected' } : { tone: 'busy', text: 'Waiting' };
    case 'opening':
      if (c.waiting !== null) return { tone: 'busy', text: 'Waiting' };
      return { tone: 'busy', text: c.everAttached ? 'Reconnecting' : 'Connecting' };
    case 'idle':
    case 'preparing':
      return { tone: 'busy', text: c.everAttached ? 'Reconnecting' : 'Connecting' };
    case 'lost':
      return { tone: 'bad', text: 'Not connected' };
    case 'over':
      return c.phase.why === 'ended' ? { tone: 'idle', text: 'Ended' } : { tone: 'bad', text: 'Not connected' };
  }
}

const overTexts = {
  missing: 'This terminal does not exist any more.',
  forbidden: 'Your link does not allow you to see this terminal.',
  unauthenticated: 'Your link is not valid any more. Ask for a new one.',
};

// bannerOf says what stands in the way of seeing and typing. pending is how
// many bytes were typed and wait for it to end.
export function bannerOf(c: Connection, now: number, mayCreate: boolean, pending: number): Banner | null {
  const kept = pending === 0 ? '' : `${pending === 1 ? '1 character' : `${pending} characters`} you typed will be sent.`;
  if (hasEnded(c)) {
    return { kind: 'ended', text: exitText(c), detail: '', action: mayCreate ? 'new-terminal' : null, kept: '' };
  }
  if (c.phase.name === 'over') {
    return { kind: 'over', text: overTexts[c.phase.why as keyof typeof overTexts], detail: '', action: 'retry', kept: '' };
  }
  if (c.waiting !== null) {
    return { kind: 'waiting', text: 'The sandbox is not connected. The terminal goes on by itself when it is back.', detail: '', action: null, kept };
  }
  if (c.phase.name === 'attached' || !overdue(c, now)) return null;
  const text = c.everAttached ? 'Connection lost. Reconnecting…' : 'The relay can’t be reached. Connecting…';
  const left = c.phase.name === 'lost' ? seconds(c.phase.retryAt, now) : 0;
  const attempt = `Attempt ${Math.max(c.failures, 1)}`;
  return { kind: 'lost', text, detail: left > 0 ? `${attempt} in ${left} s` : attempt, action: 'retry', kept };
}

// overdue reports whether an outage has lasted long enough to be reported.
export function overdue(c: Connection, now: number): boolean {
  return c.lostAt !== null && now - c.lostAt >= outageMs;
}

// progressOf is how much of a large paste has left, in percent.
export function progressOf({ waiting, done }: { waiting: number; done: number }): number | null {
  const all = waiting / (1 - done);
  return waiting > 0 && all >= progressBytes ? Math.floor(done * 100) : null;
}

// titleOf is the window's title: in a list of tabs it says what waits here. turn
// is what an agent did while nobody looked.
export function titleOf(label: string, host: string, asks: string | undefined, turn: string): string {
  if (host !== '') return `● ${host} waits for approval · fairlead`;
  if (turn !== '') return `● ${turn} · fairlead`;
  return asks === undefined ? `${label} · fairlead` : `${asks} asks for control · fairlead`;
}

function exitText({ exit }: Connection): string {
  if (exit === null) return 'This terminal has ended.';
  if (exit.signal) return `This terminal has ended: killed by ${exit.signal}.`;
  return `This terminal has ended with exit code ${exit.exit_code}.`;
}

// noControl is shown where there is nothing to control.
export const noControl: ControlView = { kind: 'unknown', id: '', name: '', text: '', detail: '', action: null, takeBack: false, enabled: false, viewOnly: false };

export function controlOf(c: Control, live: boolean, now: number): ControlView {
  const base = { id: c.controller, name: '', detail: '', takeBack: false, enabled: live, viewOnly: c.known && !c.canControl };
  if (!c.known) return { ...base, kind: 'unknown', text: '…', action: null };
  if (atWork(c)) {
    const action = c.requests.includes(c.you) ? 'cancel' : 'request';
    const name = agentLabel(c.agent);
    return { ...base, id: agentHolder, name, kind: 'agent', text: `${name} has control`, action: c.canControl ? action : null };
  }
  if (controls(c)) return { ...base, kind: 'you', text: 'You have control', action: 'release' };
  const may = (action: ControlView['action']) => (c.canControl ? action : null);
  if (c.controller === '') return { ...base, kind: 'free', text: 'Nobody has control', detail: c.canControl ? 'type to take it' : '', action: may('take') };
  const name = nameOf(c, c.controller);
  const action = may(c.requests.includes(c.you) ? 'cancel' : 'request');
  base.takeBack = c.canTakeBack;
  if (c.graceUntil === null) return { ...base, name, kind: 'other', text: `${name} has control`, action };
  return { ...base, name, kind: 'away', text: `${name} is away`, detail: `${seconds(c.graceUntil, now)} s`, action };
}

export const noAgent: AgentView = { state: 'stopped', name: '', text: '', detail: '', start: false, pause: false, resume: false, stop: false, details: false };

// agentOf says how the agent stands, and what may be done about it by somebody
// who may steer agents.
export function agentOf(c: Control, may: boolean): AgentView {
  const label = agentLabel(c.agent);
  const details = c.lastTurn !== null;
  switch (c.agentState) {
    case 'waiting':
      return { ...noAgent, details, state: 'waiting', name: label, text: `${label} is waiting for ${c.canControl ? 'you' : 'a prompt'}`, detail: whoAnswers(c), stop: may };
    case 'running':
      return { ...noAgent, details, state: 'running', name: label, text: `${label} is working`, detail: 'typing is paused', pause: may, stop: may };
    case 'paused':
      return { ...noAgent, details, state: 'paused', name: label, text: `${label} is paused`, detail: controls(c) ? 'you can type' : '', resume: may, stop: may };
    default:
      break;
  }
  const ended = { ...noAgent, details, start: may && c.known };
  if (c.agent !== '') return { ...ended, name: label, text: `${label} has ended` };
  // One that somebody has started by hand.
  return c.lastTurn === null ? ended : { ...ended, name: agentLabel(c.lastTurn.agent), text: turnText(c.lastTurn) };
}

// whoAnswers says who can type to an agent that waits.
function whoAnswers(c: Control): string {
  if (controls(c)) return 'you can type';
  if (c.controller === '') return c.canControl ? 'take control to type' : '';
  return `${nameOf(c, c.controller)} can type`;
}

export function peopleOf(c: Control, live: boolean): Model['people'] {
  const list = c.viewers.map((viewer): Person => {
    const id = viewer.user_id;
    const notes: string[] = [];
    if (c.controller === id) notes.push('has control');
    else if (c.requests.includes(id)) notes.push('asks for control');
    else if (!viewer.can_control) notes.push('view only');
    if (viewer.sockets > 1) notes.push(`${viewer.sockets} windows`);
    return {
      id,
      name: nameOf(c, id),
      note: notes.join(' · '),
      you: id === c.you,
      controls: c.controller === id,
      mayReceive: live && controls(c) && id !== c.you && viewer.can_control && !c.requests.includes(id),
    };
  });
  return { count: c.count, list };
}

// The last part of a folder's path is what people know it by, up to so long.
const mostFolder = 24;

const folderOf = ({ dir = '' }: TerminalInfo): string => visible(dir.split('/').filter((part) => part !== '' && part !== '.').at(-1) ?? '').slice(0, mostFolder);

// hintOf is what is said of a terminal's tab: its command, where it began, and
// whether that has begun at all.
export const hintOf = (info: TerminalInfo): string => [
  info.command ?? '', info.dir === undefined || info.dir === '' ? '' : `in ${visible(info.dir)}`, info.waiting === true ? startsLater : '',
].filter((text) => text !== '').join(' · ');

export const startsLater = 'starts with the first key';

// labels names terminals by their program, and their folder if they have one,
// numbered where that is not enough.
export function labels(list: TerminalInfo[]): Map<string, string> {
  const names = list.map((t) => [programOf(t.command) || 'shell', folderOf(t)].filter((part) => part !== '').join(' · '));
  const seen = new Map<string, number>();
  const result = new Map<string, string>();
  list.forEach((terminal, i) => {
    const name = names[i] ?? '';
    const nth = (seen.get(name) ?? 0) + 1;
    seen.set(name, nth);
    const several = names.filter((other) => other === name).length > 1;
    result.set(terminal.id, several ? `${name} ${nth}` : name);
  });
  return result;
}
