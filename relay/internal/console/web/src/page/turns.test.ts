import assert from 'node:assert/strict';
import { test } from 'node:test';
import { atWork, controls, nobody, update, type Control, type ControlState, type ServerMessage, type Turn } from '@fairlead/core';
import { agentLabel, callText, messageText, turnText } from '../agents/agents.ts';
import { notice, refusal } from '../terminal/words.ts';
import { agentOf, controlOf, titleOf } from './model.ts';

const turn = (more: Partial<Turn> = {}): Turn => ({ agent: 'claude-code', lastMessage: 'Done.', reason: 'complete', timestamp: 1_700_000_000_000, ...more });
const stopped = (more: Partial<Turn> = {}): ServerMessage => ({ type: 'agent_stopped', ...turn(more) });
const state = (more: Partial<ControlState> = {}): ControlState => ({
  type: 'control_state', controller: 'usr_b', requests: [], term: 1, agent_state: 'waiting', agent: 'claude', you: 'usr_b', can_control: true, ...more,
});
const after = (...messages: ServerMessage[]): Control => messages.reduce((c, m) => update(c, m, 0), nobody('usr_b', 'bob'));

test('an agent that waits leaves the keyboard to people, in whatever order that is told', () => {
  const orders: ServerMessage[][] = [
    [{ type: 'control_granted', from: 'agent', to: 'usr_b', controller: 'usr_b', term: 3 }, { type: 'agent_state', agent_state: 'waiting', agent: 'claude' }, stopped()],
    [stopped(), { type: 'agent_state', agent_state: 'waiting', agent: 'claude' }, { type: 'control_granted', from: 'agent', to: 'usr_b', controller: 'usr_b', term: 3 }],
    [state({ term: 3, last_turn: turn() })],
  ];
  for (const messages of orders) {
    const c = after(state({ agent_state: 'running', controller: 'agent', term: 2 }), ...messages);
    assert.ok(!atWork(c) && controls(c));
    assert.equal(controlOf(c, true, 0).text, 'You have control');
    const view = agentOf(c, true);
    assert.deepEqual([view.state, view.text, view.detail, view.pause, view.stop, view.details], ['waiting', 'Claude is waiting for you', 'you can type', false, true, true]);
  }
  // Between two messages nobody is told to pause it.
  const between = after(state({ agent_state: 'running', controller: 'agent', term: 2 }), { type: 'agent_state', agent_state: 'waiting', agent: 'claude' });
  assert.ok(!atWork(between));
  assert.match(refusal(between, 'not_controller'), /request it/);
});

test('who may answer an agent that waits', () => {
  const at = (more: Partial<ControlState>) => agentOf(after(state(more)), false);
  assert.equal(at({ controller: '' }).detail, 'take control to type');
  assert.equal(at({ controller: 'usr_zzzz1234' }).detail, 'user 1234 can type');
  const watcher = at({ controller: '', can_control: false });
  assert.deepEqual([watcher.text, watcher.detail, watcher.stop], ['Claude is waiting for a prompt', '', false]);
});

test('what is said in passing about turns', () => {
  const running = after(state({ agent_state: 'running', controller: 'agent' }));
  assert.equal(notice(running, stopped()), undefined, 'agent_state says it');
  assert.equal(notice(running, { type: 'agent_state', agent_state: 'waiting', agent: 'claude' }), 'Claude is waiting for you');
  assert.equal(notice(running, stopped({ reason: 'error' })), 'Claude could not go on');
  const waiting = after(state());
  assert.equal(notice(waiting, { type: 'agent_state', agent_state: 'waiting', agent: 'claude' }), 'Claude is waiting for you: you can type');
  assert.equal(notice(waiting, { type: 'agent_state', agent_state: 'running', agent: 'claude' }), undefined, 'somebody has just answered');
  const shell = after(state({ agent_state: 'stopped', agent: '' }));
  assert.equal(notice(shell, stopped({ agent: 'codex' })), 'Codex has finished its turn');
});

test('the last turn and the tools are kept', () => {
  const c = after(state({ agent_state: 'stopped', agent: '' }), stopped({ reason: 'interrupted' }), { type: 'tools_changed', oldCount: 41, newCount: 47, timestamp: 0 });
  assert.equal(c.tools, 47);
  assert.equal(agentOf(c, true).text, 'Claude was interrupted');
  assert.equal(update(c, state(), 0).lastTurn?.reason, 'interrupted');
  assert.equal(update(c, state({ last_turn: turn({ reason: 'error' }) }), 0).lastTurn?.reason, 'error');
});

test('an agent by any of its names, its message as text', () => {
  assert.deepEqual(['claude-code', 'claude', 'gemini-cli', 'aider', ''].map(agentLabel), ['Claude', 'Claude', 'Gemini', 'aider', 'The agent']);
  assert.equal(turnText(turn({ reason: 'unknown' })), 'Claude has finished its turn');
  assert.deepEqual(['complete', 'error'].map((reason) => callText(turn({ reason }))), ['Claude is waiting for you', 'Claude could not go on']);
  assert.equal(messageText(turn({ lastMessage: '  a\tb\r\n<b>\u202ec\x1b[31m\n' })), 'a    b\n<b>⟨U+202E⟩c⟨U+001B⟩[31m');
});

test('the title says what waits', () => {
  assert.equal(titleOf('bash', '', undefined, 'Claude has finished its turn'), '● Claude has finished its turn · fairlead');
  assert.equal(titleOf('bash', 'a.example', undefined, 'Claude has finished its turn'), '● a.example waits for approval · fairlead');
  assert.equal(titleOf('bash', '', 'bob', ''), 'bob asks for control · fairlead');
});
