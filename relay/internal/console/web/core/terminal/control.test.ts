import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeInput, freeTerm, type ControlState, type ServerMessage } from '../protocol.ts';
import { controls, nobody, terms, update, type Control } from './control.ts';

const state = (more: Partial<ControlState> = {}): ControlState => ({
  type: 'control_state', controller: 'usr_a', requests: [], term: 1, agent_state: 'stopped', you: 'usr_b', can_control: true, ...more,
});
const presence: ServerMessage = {
  type: 'presence', count: 2,
  viewers: [{ user_id: 'usr_a', name: 'alice', sockets: 2, can_control: true }, { user_id: 'usr_b', name: 'bob', sockets: 1, can_control: true }],
};
const after = (...messages: ServerMessage[]): Control => messages.reduce((c, m) => update(c, m, 0), nobody('usr_b', 'bob'));

test('control moves', () => {
  const asked = after(presence, state(), { type: 'control_requested', from: 'usr_b', requests: ['usr_b'] });
  assert.deepEqual(asked.requests, ['usr_b']);
  const granted = update(asked, { type: 'control_granted', from: 'usr_a', to: 'usr_b', controller: 'usr_b', term: 2 }, 0);
  assert.ok(controls(granted));
  assert.deepEqual(granted.requests, []);
  assert.equal(update(granted, { type: 'control_revoked', from: 'usr_b', controller: '' }, 0).controller, '');
  assert.equal(update(granted, { type: 'control_expired', from: 'usr_b', controller: '' }, 0).controller, '');
  assert.equal(update(granted, { type: 'control_taken', controller: 'usr_a', term: 3 }, 0).controller, 'usr_a');
});

test('nobody is in control of a free terminal, not even somebody without an id', () => {
  assert.equal(controls(after(state({ controller: '', you: '' }))), false);
});

test('the terms under which typing counts', () => {
  assert.deepEqual(terms(nobody('usr_b', 'bob')), []);
  assert.deepEqual(terms(after(state({ controller: 'usr_b', term: 4 }))), [4, freeTerm(3)]);
  assert.deepEqual(terms(after(state({ controller: '', term: 4 }))), [freeTerm(4)]);
  assert.deepEqual(terms(after(state({ controller: '', term: 4, can_control: false }))), []);
  assert.deepEqual(terms(after(state({ term: 4 }))), []);
  assert.deepEqual(terms(after(state({ controller: 'usr_b', term: 4, agent_state: 'running' }))), []);
  const frame = encodeInput(1, freeTerm(0), new Uint8Array(1));
  assert.deepEqual([...frame.subarray(8, 16)], [0x80, 0, 0, 0, 0, 0, 0, 0]);
  assert.equal(new DataView(encodeInput(1, freeTerm(7), new Uint8Array(1)).buffer).getBigUint64(8), (1n << 63n) + 7n);
});
