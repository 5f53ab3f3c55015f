import assert from 'node:assert/strict';
import { test } from 'node:test';
import { leftOf, mayStop, nextOf, none, noteOf, sendOf, type ChatModel } from './model.ts';

const talk = { id: 'c1', provider: 'claude', title: 't', lastActivity: '', running: false };
const base: ChatModel = { ...none, talk, mayTalk: true, mayApprove: true, you: 'alice', reach: 'open' };
const held = (controller: string, ...requests: string[]): ChatModel => ({
  ...base, control: { kind: 'control_state', sessionId: 'c1', controller, requests, state: 'held' },
});
const running: ChatModel = { ...base, conversation: { ...base.conversation, running: true } };
const message = { name: 'm', conversation: 'c1', content: 'x', images: [], options: {} };

test('what the button does', () => {
  assert.equal(sendOf(base), 'send');
  assert.equal(sendOf(held('alice')), 'send');
  assert.equal(sendOf(held('bob')), 'ask');
  assert.equal(sendOf(held('bob', 'alice')), 'asked');
  assert.equal(sendOf({ ...held('bob'), reach: 'lost' }), 'none');
  assert.equal(sendOf(running), 'queue');
  assert.equal(sendOf({ ...base, mayTalk: false }), 'none');
});

test('who writes may stop a run, nobody else', () => {
  const at = (m: ChatModel) => mayStop({ ...m, conversation: running.conversation });
  assert.ok(at(base) && at(held('alice')));
  assert.ok(!at(held('bob')) && !at({ ...base, mayTalk: false }) && !mayStop(base));
});

test('what is said above it', () => {
  const name = (id: string) => id.toUpperCase();
  assert.equal(noteOf(base, name), '');
  assert.match(noteOf(held('bob'), name), /BOB is writing/);
  assert.match(noteOf(held('alice', 'bob'), name), /BOB would like/);
  assert.match(noteOf({ ...base, reach: 'lost' }, name), /waits/);
  assert.equal(noteOf({ ...held('bob'), reach: 'lost' }, name), 'Not connected.');
});

test('a queued message goes when the run is over, one at a time', () => {
  assert.equal(nextOf({ ...running, queued: [message] }), undefined);
  assert.equal(nextOf({ ...base, queued: [message] }), message);
  assert.equal(nextOf({ ...base, queued: [message], waiting: [{ ...message, name: 'n' }] }), undefined);
  assert.equal(nextOf({ ...held('bob'), queued: [message] }), undefined);
});

test('the time that is left', () => {
  const item = { kind: 'asked' as const, id: 'q', tool: 'Bash', input: {}, revision: 1, state: 'open' as const };
  assert.equal(leftOf(item, 0), undefined);
  assert.equal(leftOf({ ...item, expiresAt: new Date(55_000).toISOString() }, 5_000), 50);
  assert.equal(leftOf({ ...item, expiresAt: new Date(55_000).toISOString() }, 99_000), 0);
});
