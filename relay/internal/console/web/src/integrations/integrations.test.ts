import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessText, consentAt, policyJSON, readPolicy, rowsOf, withAccess, type Attachment, type Mine } from './integrations.ts';

const mine: Mine = {
  providers: [{ name: 'google_drive', set_up: true }, { name: 'github', set_up: true }, { name: 'gmail', set_up: false }],
  accounts: [{ id: 'acc_1', provider: 'github', name: 'octocat' }, { id: 'acc_2', provider: 'gmail', name: 'a@b.example', needs_reconnect: true }],
};
const attached = (more: Partial<Attachment> = {}): Attachment => ({
  session_id: 'ses_1', pty_id: 'pty_1', provider: 'github', account_id: 'acc_1', account_name: 'octocat', account_user: 'usr_a', policy: { read_only: true }, ...more,
});
const members = [{ user: 'usr_a', name: 'alice', role: 'owner' }, { user: 'usr_b', name: 'bob', role: 'editor' }, { user: 'usr_c', name: 'carol', role: 'viewer' }];
const at = { session: 'ses_1', pty: 'pty_1', you: 'usr_a', members };

test('what is attached to this terminal, and what could be', () => {
  const rows = rowsOf(mine, [attached(), attached({ pty_id: 'pty_2', provider: 'google_drive' }), attached({ session_id: 'ses_2', provider: 'google_drive' })], at);
  assert.deepEqual(rows.map(({ provider, detail, attach, change, detach }) => [provider, detail, attach, change, detach]), [
    ['github', 'octocat · read only', false, true, true],
    ['google_drive', 'Not attached', true, false, false],
  ]);
});

test('who may only look sees what is attached, and nothing to press', () => {
  const rows = rowsOf(null, [attached({ policy: { read_only: false, github: { repos: ['a/*'] } } })], { ...at, you: 'usr_c' });
  assert.deepEqual(rows.map(({ detail, attach, change, detach }) => [detail, attach, change, detach]), [['octocat · lent by alice · full access, with rules', false, false, false]]);
});

test('somebody else’s account can be detached and not changed; an expired one says so', () => {
  const [other] = rowsOf(mine, [attached()], { ...at, you: 'usr_b' });
  assert.deepEqual([other?.change, other?.detach], [false, true]);
  assert.equal(rowsOf(mine, [attached({ account_user: 'usr_gone' })], at)[0]?.detail, 'octocat · lent by somebody else · read only');
  const [gmail] = rowsOf(mine, [attached({ provider: 'gmail', account_id: 'acc_2', account_name: 'a\u202e@b.example', needs_reconnect: true })], at);
  assert.deepEqual([gmail?.tone, gmail?.detail], ['trouble', 'a⟨U+202E⟩@b.example · read only · has to be connected again']);
});

test('rules', () => {
  assert.equal(accessText({}), 'read only');
  assert.equal(accessText(undefined), '');
  const policy = { read_only: true, gmail: { senders: ['*@b.example'] } };
  assert.deepEqual(withAccess(policy, true), { read_only: false, gmail: { senders: ['*@b.example'] } });
  assert.deepEqual(readPolicy(policyJSON(policy)), { policy, problem: '' });
  for (const [text, problem] of [['{', /not JSON/], ['[]', /object/], ['null', /object/], ['{"read_only":"no"}', /true or false/]] as const) assert.match(readPolicy(text).problem, problem);
});

test('people are sent to a service over https, or to this machine', () => {
  assert.deepEqual(consentAt('https://github.com/login/oauth/authorize?x=1'), { href: 'https://github.com/login/oauth/authorize?x=1', host: 'github.com' });
  assert.equal(consentAt('http://127.0.0.1:9000/authorize')?.host, '127.0.0.1:9000');
  for (const url of ['http://github.com/', 'javascript:alert(1)', 'https://github.com@evil.example/', 'data:text/html,x', '', '/relative']) assert.equal(consentAt(url), undefined, url);
});
