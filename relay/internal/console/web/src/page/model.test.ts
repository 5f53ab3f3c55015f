import assert from 'node:assert/strict';
import { test } from 'node:test';
import { atWork, nobody, update, type Control, type ControlState, type ServerMessage } from '@fairlead/core';
import { dropped, nameOf, notice, refusal } from '../terminal/words.ts';
import { agentOf, controlOf, hintOf, labels, noAgent, peopleOf } from './model.ts';

const state = (more: Partial<ControlState> = {}): ControlState => ({
  type: 'control_state', controller: 'usr_a', requests: [], term: 1, agent_state: 'stopped', you: 'usr_b', can_control: true, ...more,
});
const presence: ServerMessage = {
  type: 'presence', count: 2,
  viewers: [{ user_id: 'usr_a', name: 'alice', sockets: 2, can_control: true }, { user_id: 'usr_b', name: 'bob', sockets: 1, can_control: true }],
};
const after = (...messages: ServerMessage[]): Control => messages.reduce((c, m) => update(c, m, 0), nobody('usr_b', 'bob'));
const view = (c: Control, now = 0) => {
  const { kind, text, detail, action } = controlOf(c, true, now);
  return { kind, text: `${text} ${detail}`.trim(), action };
};

test('who has control, and what one may do about it', () => {
  assert.deepEqual(view(nobody('usr_b', 'bob')), { kind: 'unknown', text: '…', action: null });
  assert.deepEqual(view(after(presence, state())), { kind: 'other', text: 'alice has control', action: 'request' });
  assert.deepEqual(view(after(presence, state({ requests: ['usr_b'] }))), { kind: 'other', text: 'alice has control', action: 'cancel' });
  assert.deepEqual(view(after(presence, state({ can_control: false }))), { kind: 'other', text: 'alice has control', action: null });
  assert.deepEqual(view(after(presence, state({ controller: '' }))), { kind: 'free', text: 'Nobody has control type to take it', action: 'take' });
  assert.deepEqual(view(after(presence, state({ controller: 'usr_b' }))), { kind: 'you', text: 'You have control', action: 'release' });
  assert.deepEqual(view(after(presence, state({ grace_ms: 9_500 })), 2_000), { kind: 'away', text: 'alice is away 8 s', action: 'request' });
});

test('names outlive presence', () => {
  const c = after(presence, { type: 'presence', count: 1, viewers: [] });
  assert.equal(nameOf(c, 'usr_a'), 'alice');
  assert.equal(nameOf(c, 'usr_zzzz1234'), 'user 1234');
});

test('what is said in passing', () => {
  const c = after(presence, state());
  assert.equal(notice(c, { type: 'control_granted', from: 'usr_a', to: 'usr_b', controller: 'usr_b', term: 2 }), 'alice gave you control');
  assert.equal(notice(c, { type: 'control_taken', controller: 'usr_b', term: 2 }), undefined);
  assert.equal(notice(c, { type: 'error', name: 'AuthError', message: 'forbidden' }), 'forbidden');
  assert.match(refusal(c, 'not_controller'), /alice has control/);
  assert.match(refusal(after(state({ can_control: false })), 'not_controller'), /watching/);
  assert.match(refusal(after(state({ controller: '' })), 'not_controller'), /Take control/);
});

test('the controller may hand over to whoever may type and has not asked', () => {
  const c = after({
    type: 'presence', count: 3,
    viewers: [
      { user_id: 'usr_a', name: 'alice', sockets: 1, can_control: true },
      { user_id: 'usr_b', name: 'bob', sockets: 1, can_control: true },
      { user_id: 'usr_c', name: 'carol', sockets: 1, can_control: false },
    ],
  }, state({ controller: 'usr_b' }));
  assert.deepEqual(peopleOf(c, true).list.map((p) => p.mayReceive), [true, false, false]);
  assert.deepEqual(peopleOf(c, false).list.map((p) => p.mayReceive), [false, false, false]);
  assert.deepEqual(peopleOf(c, true).list.map((p) => p.note), ['', 'has control', 'view only']);
});

test('an agent at work has control, whatever came first', () => {
  const running = { agent_state: 'running', agent: 'claude' };
  const orders: ServerMessage[][] = [
    [{ type: 'agent_state', ...running }],
    [{ type: 'control_taken', controller: 'agent', term: 2 }],
    [state({ ...running, controller: 'agent', term: 2 })],
  ];
  for (const messages of orders) {
    const c = after(presence, state({ controller: 'usr_b', agent: 'claude' }), ...messages);
    assert.deepEqual(view(c), { kind: 'agent', text: 'Claude has control', action: 'request' });
    assert.ok(atWork(c));
  }
  const asked = after(presence, state({ ...running, controller: 'agent', requests: ['usr_b'] }));
  assert.equal(view(asked).action, 'cancel');
  assert.equal(view(after(state({ ...running, controller: 'agent', can_control: false }))).action, null);
  assert.equal(nameOf(after(state({ controller: 'agent' })), 'agent'), 'The agent');
});

test('what may be done about an agent', () => {
  const at = (agent_state: string, agent: string, more: Partial<ControlState> = {}) => agentOf(after(presence, state({ agent_state, agent, ...more })), true);
  assert.deepEqual(agentOf(nobody('usr_b', 'bob'), true), noAgent);
  assert.deepEqual(at('stopped', ''), { ...noAgent, start: true });
  assert.deepEqual(at('stopped', 'codex'), { ...noAgent, name: 'Codex', text: 'Codex has ended', start: true });
  assert.deepEqual(at('running', 'aider'), { ...noAgent, state: 'running', name: 'aider', text: 'aider is working', detail: 'typing is paused', pause: true, stop: true });
  assert.deepEqual(at('paused', 'opencode'), { ...noAgent, state: 'paused', name: 'OpenCode', text: 'OpenCode is paused', resume: true, stop: true });
  assert.equal(at('paused', 'opencode', { controller: 'usr_b' }).detail, 'you can type');
  const { start, pause, resume, stop } = agentOf(after(state({ agent_state: 'running', agent: 'claude' })), false);
  assert.deepEqual([start, pause, resume, stop], [false, false, false, false]);
});

test('what an agent does is said once', () => {
  const c = after(presence, state({ controller: 'usr_b' }));
  const said = (...messages: ServerMessage[]) => messages.map((m) => notice(c, m)).filter((text) => text !== undefined);
  assert.deepEqual(said({ type: 'control_taken', controller: 'agent', term: 2 }, { type: 'agent_state', agent_state: 'running', agent: 'claude' }), ['Claude is working: typing is paused']);
  assert.deepEqual(said({ type: 'control_granted', from: 'agent', to: 'usr_b', controller: 'usr_b', term: 3 }, { type: 'agent_state', agent_state: 'paused', agent: 'claude' }), ['Claude is paused: you can type']);
  assert.deepEqual(said({ type: 'control_revoked', from: 'agent', controller: '' }, { type: 'agent_state', agent_state: 'stopped', agent: '' }), ['The agent has ended: you can type']);
  assert.equal(refusal(after(state({ agent_state: 'running', agent: 'gemini' })), 'agent_running'), 'Gemini is working here: pause it to type');
});

test('terminals are named by their program', () => {
  const list = ['', '/usr/bin/htop -d 5', undefined, '-bash'].map((command, i) => ({ id: `p${i}`, cols: 80, rows: 24, created_at: i, ...(command === undefined ? {} : { command }) }));
  assert.deepEqual([...labels(list).values()], ['shell 1', 'htop', 'shell 2', 'bash']);
});

test('shells are named by their program and folder, and say when they have not begun', () => {
  const shell = (id: string, command: string, more = {}) => ({ id, command, cols: 80, rows: 24, created_at: 0, ...more });
  const list = [
    shell('pty_n3xk', 'claude', { dir: 'apps/shop' }), shell('pty_b', 'claude', { dir: 'apps/shop' }), shell('pty_c', 'codex', { dir: 'a\u202eb' }),
    shell('pty_d', 'claude', { waiting: true }), shell('pty_e', 'bash', { dir: './' }),
  ];
  assert.deepEqual([...labels(list).values()], ['claude · shop 1', 'claude · shop 2', 'codex · a⟨U+202E⟩b', 'claude', 'bash']);
  assert.deepEqual(list.map(hintOf).slice(0, 4), ['claude · in apps/shop', 'claude · in apps/shop', 'codex · in a⟨U+202E⟩b', 'claude · starts with the first key']);
});

test('what was refused for good is said, with what to do about it', () => {
  assert.equal(dropped(after(presence, state({ controller: '' })), 1, 'not_controller'), '1 character you typed was not sent: you had lost control meanwhile. Take control and type it again');
  assert.equal(dropped(after(presence, state({ controller: 'usr_b' })), 12, 'stale_term'), '12 characters you typed were not sent: control had changed meanwhile. Please type it again');
  assert.equal(dropped(after(presence, state()), 2, 'stale_term'), '2 characters you typed were not sent: alice has control now');
  assert.match(dropped(after(presence, state()), 2, 'ended'), /has ended/);
  assert.match(dropped(after(presence, state({ agent: 'claude' })), 2, 'agent_running'), /at work/);
  assert.match(dropped(after(presence, state({ can_control: false })), 2, 'not_controller'), /does not allow typing/);
});

test('control that was not handed over is told with the reason', () => {
  const c = after(presence, state());
  const granted = (from: string, to: string, reason: string): ServerMessage => ({ type: 'control_granted', from, to, controller: to, term: 2, reason });
  assert.equal(notice(c, granted('usr_b', 'usr_a', 'owner')), 'alice owns this session and took control back');
  assert.equal(notice(c, granted('usr_a', 'usr_b', 'owner')), undefined);
  assert.equal(notice(c, granted('usr_c', 'usr_a', 'owner')), 'alice took control back from user sr_c');
  assert.equal(notice(c, granted('usr_b', 'usr_a', 'idle')), 'You had not typed for 30 s: alice asked and has control now');
  assert.equal(notice(c, granted('usr_a', 'usr_b', 'idle')), 'alice had not typed for 30 s: you have control now');
  assert.equal(notice(c, granted('usr_c', 'usr_a', 'idle')), 'alice has control now: user sr_c had not typed for 30 s');
});

test('who owns the session may take control back', () => {
  const back = (c: Control) => controlOf(c, true, 0).takeBack;
  assert.equal(back(after(presence, state({ can_take_back: true }))), true);
  assert.equal(back(after(presence, state({ can_take_back: true, grace_ms: 1_000 }))), true);
  assert.equal(back(after(presence, state())), false);
  assert.equal(back(after(presence, state({ can_take_back: true, controller: 'usr_b' }))), false);
  assert.equal(back(after(presence, state({ can_take_back: true, controller: '' }))), false);
  assert.equal(back(after(presence, state({ can_take_back: true, agent_state: 'running', controller: 'agent' }))), false);
});
