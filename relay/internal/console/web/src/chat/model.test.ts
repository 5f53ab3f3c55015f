import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answered, goesOn, leftOf, mayStop, newsOf, none, noteOf, sendOf, whyWaits, type ChatModel } from './model.ts';

const talk = { id: 'c1', provider: 'claude', title: 't', lastActivity: '', running: false };
const base: ChatModel = { ...none, talk, mayTalk: true, mayApprove: true, you: 'alice', reach: 'open' };
const held = (controller: string, ...requests: string[]): ChatModel => ({
  ...base, control: { kind: 'control_state', sessionId: 'c1', controller, requests, state: 'held' },
});
const running: ChatModel = { ...base, conversation: { ...base.conversation, running: true } };

test('what the button does', () => {
  assert.equal(sendOf(base), 'send');
  assert.equal(sendOf(held('alice')), 'send');
  assert.equal(sendOf(held('bob')), 'ask');
  assert.equal(sendOf(held('bob', 'alice')), 'asked');
  assert.equal(sendOf({ ...held('bob'), reach: 'lost' }), 'none');
  assert.equal(sendOf(running), 'queue');
  assert.equal(sendOf({ ...base, mayTalk: false }), 'none');
});

test('a conversation goes on in a terminal when nothing else goes on in it', () => {
  const items = [{ kind: 'said' as const, id: 's', role: 'user' as const, text: 'hi', live: false }];
  const said = (m: ChatModel): ChatModel => ({ ...m, conversation: { ...m.conversation, items } });
  assert.equal(goesOn(said(base), true).state, 'can');
  assert.equal(goesOn(base, true).state, 'none'); // nothing was said
  assert.equal(goesOn(said(base), false).state, 'none');
  assert.equal(goesOn(said({ ...base, mayTalk: false }), true).state, 'none');
  assert.equal(goesOn(said({ ...base, mayApprove: false }), true).state, 'none');
  for (const [m, why] of [[running, /working/], [held('bob'), /Somebody/], [{ ...base, reach: 'lost' }, /connection/]] as const) {
    const at = goesOn(said(m), true);
    assert.equal(at.state, 'not');
    assert.match(at.why, why);
  }
  const there = said({ ...base, terminal: 'pty_1' });
  assert.equal(goesOn(there, false).state, 'there');
  assert.equal(sendOf(there), 'none');
  assert.equal(sendOf({ ...held('bob'), terminal: 'pty_1' }), 'ask');
  assert.match(whyWaits(there, () => ''), /terminal/);
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

test('why a message waits', () => {
  const name = (id: string) => id.toUpperCase();
  assert.match(whyWaits({ ...running, reach: 'lost' }, name), /connection/);
  assert.match(whyWaits(running, name), /turn is over/);
  assert.match(whyWaits(held('bob'), name), /while BOB writes/);
});

test('who has answered a question, and what', () => {
  const name = (id: string) => id.toUpperCase();
  const say = (tool: string, decision?: string, by = 'bob') => answered({
    kind: 'asked', id: 'q', tool, input: {}, revision: 1, state: 'decided', ...(decision === undefined ? {} : { answer: { by, decision } }),
  }, 'alice', name);
  assert.equal(say('Bash', 'allow_once'), 'BOB allowed it');
  assert.equal(say('Bash', 'allow_always'), 'BOB allowed it, for this session');
  assert.equal(say('Bash', 'deny', 'alice'), 'You denied it');
  assert.equal(say('AskUserQuestion', 'allow_once'), 'BOB answered');
  assert.equal(say('AskUserQuestion', 'deny'), 'BOB didn’t answer');
  assert.equal(say('Bash'), 'Answered'); // by a sandbox that doesn't say
});

test('a question is told where nobody else tells it', () => {
  const item = { kind: 'asked' as const, id: 'q', tool: 'Bash', input: {}, revision: 1, state: 'open' as const };
  assert.equal(newsOf(item, 'May it use Bash?', true), '');
  assert.match(newsOf(item, 'May it use Bash?', false), /^May it use Bash\? Somebody/);
  assert.match(newsOf({ ...item, tool: 'AskUserQuestion' }, 'The agent asks: Which?', true), /Which\? F6/);
});

test('the time that is left', () => {
  const item = { kind: 'asked' as const, id: 'q', tool: 'Bash', input: {}, revision: 1, state: 'open' as const };
  assert.equal(leftOf(item, 0), undefined);
  assert.equal(leftOf({ ...item, expiresAt: new Date(55_000).toISOString() }, 5_000), 50);
  assert.equal(leftOf({ ...item, expiresAt: new Date(55_000).toISOString() }, 99_000), 0);
});
