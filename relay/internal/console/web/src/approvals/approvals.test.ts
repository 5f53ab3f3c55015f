import assert from 'node:assert/strict';
import { test } from 'node:test';
import { visible } from '../ui/visible.ts';
import {
  cardsOf, choiceOf, choose, countOf, decidable, explain, hostOf, leftText, logged, logOf, merge, mostKept, none, outcomeOf, problemOf, refuse, reopen,
  type Approval, type Approvals, type Naming,
} from './approvals.ts';
import { stateText } from './egress.ts';
import { decode, reading } from './punycode.ts';

const naming: Naming = { you: 'usr_a', name: (id) => (id === 'usr_b' ? 'bob' : id), terminal: (id) => (id === 'pty_1' ? 'shell' : undefined) };
const asked = (id: string, more: Partial<Approval> = {}): Approval => ({
  id, revision: 1, kind: 'egress', pty_id: 'pty_1', host: `${id}.example`, port: 443, state: 'pending', asked_at: 1_000, ends_at: 61_000, left_ms: 60_000, ...more,
});
const decided = (id: string, user = 'usr_b', more: Partial<Approval> = {}): Approval => asked(id, { revision: 2, state: 'decided', decision: 'allow_once', user_id: user, ends_at: 30_000, ...more });
const after = (...list: Approval[]): Approvals => list.reduce((state, a) => merge(state, a, 0), none);
const cards = (state: Approvals, now = 0, held = () => false) => cardsOf(state, naming, now, held);
const outcome = (state: Approvals, id: string) => {
  const entry = state.entries.get(id);
  return entry === undefined ? undefined : outcomeOf(entry, naming);
};

test('time runs on the page’s own clock, from what the sandbox said is left', () => {
  const state = merge(none, asked('a', { asked_at: 5e12, ends_at: 5e12 + 60_000, left_ms: 40_000 }), 1_000);
  assert.deepEqual(cards(state, 1_000).map(({ left }) => left), ['40 s']);
  assert.equal(cards(state, 40_999)[0]?.left, '1 s');
  assert.equal(cards(state, 50_000)[0]?.left, 'time is up');
  assert.ok(cards(state, 50_000)[0]?.pending, 'the sandbox alone says that it has expired');
  assert.equal(cards(state, 21_000)[0]?.part.toFixed(2), '0.33');
  assert.equal(leftText(600_000), '10 min');
});

test('an older revision changes nothing, in whatever order events come', () => {
  const done = after(asked('a'), decided('a'));
  assert.deepEqual(merge(done, asked('a'), 5), done);
  assert.equal(outcome(done, 'a'), 'bob allowed it once');
  assert.equal(countOf(done), 0);
});

test('who decided, and who was first', () => {
  const mine = choose(after(asked('a')), 'a', 'deny', 'k1');
  assert.equal(outcome(merge(mine, decided('a'), 0), 'a'), 'bob had allowed it once already');
  assert.equal(outcome(merge(mine, decided('a', 'usr_a', { decision: 'deny' }), 0), 'a'), 'You denied it');
  const late = merge(mine, asked('a', { revision: 2, state: 'expired' }), 0);
  assert.equal(outcome(late, 'a'), 'Expired before your answer came: denied');
  assert.equal(outcome(after(asked('b'), asked('b', { revision: 2, state: 'expired' })), 'b'), 'Expired: denied');
  assert.equal(outcome(after(decided('c', 'usr_b', { decision: 'deny_always' })), 'c'), 'bob denied it always');
});

test('cards stay in place, go after a while, and not from below the pointer', () => {
  const state = after(asked('a'), asked('b'), decided('a'));
  assert.deepEqual(cards(state).map(({ id }) => id), ['a', 'b']);
  assert.deepEqual(cards(state, 9_999).map(({ id }) => id), ['a', 'b']);
  assert.deepEqual(cards(state, 10_000).map(({ id }) => id), ['b']);
  assert.deepEqual(cardsOf(state, naming, 1e6, (id) => id === 'a').map(({ id }) => id), ['a', 'b']);
  assert.deepEqual(cards(after(decided('old'))), [], 'decided before this page came');
});

test('the same decision keeps its key until it is refused', () => {
  const first = choose(after(asked('a')), 'a', 'deny', 'k1');
  assert.equal(choiceOf(first, 'a', 'k1')?.decision, 'deny');
  const waiting = explain(first, 'a', 'away: trying again');
  assert.equal(cards(waiting)[0]?.note, 'away: trying again');
  assert.ok(cards(waiting)[0]?.busy);
  const away = refuse(waiting, 'a', 'undecidable', 'whatever');
  assert.equal(choiceOf(away, 'a', 'k1'), undefined);
  assert.equal(choose(away, 'a', 'deny', 'k2').entries.get('a')?.choice?.key, 'k1');
  assert.equal(choose(away, 'a', 'allow_once', 'k2').entries.get('a')?.choice?.key, 'k2');
  const refused = refuse(first, 'a', 'refused', 'forbidden');
  assert.equal(cards(refused)[0]?.note, 'forbidden');
  assert.equal(choose(refused, 'a', 'deny', 'k2').entries.get('a')?.choice?.key, 'k2');
  assert.equal(choiceOf(merge(first, decided('a'), 0), 'a', 'k1'), undefined, 'it was decided meanwhile');
});

test('without the control plane all cards say so, until something was answered', () => {
  const state = refuse(choose(after(asked('a'), asked('b')), 'a', 'deny', 'k'), 'a', 'undecidable', '');
  for (const { note } of cards(state)) assert.match(note, /^Nothing can be decided/);
  for (const { note } of cards(decidable(state))) assert.equal(note, '');
});

test('which answers are worth another try', () => {
  assert.equal(problemOf(0, ''), 'again');
  assert.equal(problemOf(503, 'the sandbox is not connected'), 'again');
  assert.equal(problemOf(503, 'it can\'t be decided now: the control plane doesn\'t answer'), 'undecidable');
  assert.equal(problemOf(502, ''), 'again');
  assert.equal(problemOf(409, ''), 'refused');
  assert.equal(problemOf(403, ''), 'refused');
});

test('a gap: what the sandbox no longer asks is nobody’s to decide', () => {
  const state = after(asked('a'), asked('b'));
  assert.equal(countOf(reopen(state, { pending: [asked('b')] }, 0)), 2, 'events follow');
  const gap = reopen(state, { gap: true, pending: [asked('b', { left_ms: 10_000 })] }, 0);
  assert.equal(countOf(gap), 1);
  assert.equal(outcome(gap, 'a'), 'Nobody waits for this any more');
  assert.equal(cards(gap).find(({ id }) => id === 'b')?.left, '10 s');
  assert.equal(outcome(merge(gap, asked('a', { revision: 2, state: 'expired' }), 0), 'a'), 'Expired: denied');
});

test('the log is short, what is kept bounded', () => {
  let state = none;
  for (let i = 0; i < 2 * mostKept; i++) state = merge(state, decided(`a${i}`, 'usr_b', { ends_at: i }), 0);
  assert.equal(state.entries.size, mostKept);
  const log = logOf(state, naming);
  assert.equal(log.length, logged);
  assert.equal(log[0]?.host, `a${2 * mostKept - 1}.example:443`);
  assert.equal(log[0]?.who, 'shell');
});

test('hosts in full, and as people read them', () => {
  assert.equal(hostOf(asked('a', { host: '2001:db8::1' })), '[2001:db8::1]:443');
  assert.equal(hostOf(asked('a', { host: 'h.example', port: 0 })), 'h.example');
  assert.equal(hostOf(asked('a', { host: 'a\u202eb.example' })), 'a⟨U+202E⟩b.example:443');
  assert.equal(reading('xn--e1afmkfd.xn--p1ai'), 'пример.рф');
  assert.equal(reading('xn--bcher-kva.example'), 'bücher.example');
  assert.equal(reading('xn--fsqu00a.xn--0zwm56d'), '例子.测试');
  assert.equal(reading('plain.example'), undefined);
  assert.equal(reading('xn--!!!.example'), undefined);
  for (const bad of ['a-', '-', '99999999', 'ab-99999999999', 'z']) assert.doesNotThrow(() => decode(bad));
  const card = cards(after(asked('a', { kind: 'broker', secret: 'KEY', pty_id: 'pty_9', host: 'api.example' })))[0];
  assert.equal(`${card?.who} ${card?.what} ${card?.host}`, 'A program wants to send the secret KEY to api.example:443');
});

test('decoding survives anything', () => {
  const seed = Date.now() >>> 0;
  let x = seed || 1;
  const random = (n: number) => ((x = (Math.imul(x, 1664525) + 1013904223) >>> 0), x % n);
  for (let i = 0; i < 20_000; i++) {
    const label = Array.from({ length: random(20) }, () => 'abcdefghijklmnopqrstuvwxyz0123456789-'[random(37)]).join('');
    assert.doesNotThrow(() => visible(reading(`xn--${label}.example`) ?? ''), `seed ${seed}: ${label}`);
  }
});

const tool = (id: string, more: Partial<Approval> = {}): Approval => ({
  id, revision: 1, kind: 'tool', conversation_id: '5b0d8d43-6c1a', tool: 'Bash', input: { command: 'git status' }, input_sha256: 'ab', state: 'pending', asked_at: 1_000, ends_at: 56_000, left_ms: 55_000, ...more,
});

test('a coding agent’s question', () => {
  const state = after(tool('t'), tool('f', { tool: 'ExitPlanMode', ends_at: 0 }));
  const [card, forever] = cards(state, 5_000);
  assert.equal(`${card?.who} ${card?.what} ${card?.host}`, 'The coding agent in conversation 5b0d8d43 wants to use Bash');
  assert.equal(card?.left, '50 s');
  assert.deepEqual(card?.tool?.parts.map(({ lines }) => lines.map(({ text }) => text)), [['git status']]);
  assert.equal(cards(state, 6_000)[0]?.tool, card?.tool, 'its view is made once');
  assert.equal(forever?.left, 'waits without limit');
  assert.equal(forever?.part, 0);
  assert.equal(cards(state, 1e9).length, 2, 'the sandbox alone says that it is over');
  const titled: Naming = { ...naming, conversation: () => 'Fix the \u202ebuild' };
  assert.equal(cardsOf(state, titled, 0, () => false)[0]?.who, 'The coding agent in “Fix the ⟨U+202E⟩build”');
});

test('how a coding agent’s question ends', () => {
  const over = { revision: 2, input: undefined, ends_at: 30_000 };
  assert.equal(outcome(after(tool('t'), tool('t', { ...over, state: 'cancelled' })), 't'), 'Not needed any more');
  const mine = choose(after(tool('t')), 't', 'deny', 'k1', { message: 'no' });
  assert.match(outcome(merge(mine, tool('t', { ...over, state: 'cancelled' }), 0), 't') ?? '', /before your answer came$/);
  const always = tool('t', { ...over, state: 'decided', decision: 'allow_always', user_id: 'usr_b', remember: 'Bash(git status:*)' });
  assert.equal(outcome(after(tool('t'), always), 't'), 'bob allowed it always, and Bash(git status:*) from now on');
  assert.deepEqual(cards(after(tool('t'), always), 20_000), [], 'it goes');
  assert.equal(logOf(after(always), naming)[0]?.host, 'Bash');
});

test('a decision in other words is another one', () => {
  const first = choose(after(tool('t')), 't', 'deny', 'k1', { message: 'no' });
  const away = refuse(first, 't', 'undecidable', '');
  assert.equal(choose(away, 't', 'deny', 'k2', { message: 'no' }).entries.get('t')?.choice?.key, 'k1');
  assert.equal(choose(away, 't', 'deny', 'k2', { message: 'no!' }).entries.get('t')?.choice?.key, 'k2');
  assert.equal(choose(away, 't', 'deny', 'k2').entries.get('t')?.choice?.key, 'k2');
});

test('what a stream’s beginning lacks is kept, or comes with the list', () => {
  const opened = reopen(after(tool('t')), { more: true, pending: [tool('t', { input: undefined }), tool('u', { input: undefined })] }, 0);
  assert.deepEqual(opened.entries.get('t')?.approval.input, { command: 'git status' });
  assert.match(cards(opened)[1]?.tool?.parts[0]?.lines[0]?.text ?? '', /SHA-256 ab/);
  assert.equal(cards(merge(opened, tool('u'), 0))[1]?.tool?.parts[0]?.lines[0]?.text, 'git status');
});

test('nothing invisible stays so', () => {
  assert.equal(visible('a\u0000\u200b\u2066\ud800b c'), 'a⟨U+0000⟩⟨U+200B⟩⟨U+2066⟩⟨U+D800⟩b c');
  assert.equal(visible('привет 例 é👍'), 'привет 例 é👍');
});

test('what a state of egress means', () => {
  assert.match(stateText({ state: 'advisory', why: 'no nftables', defaults: null, user: null, denied: null }).text, /gets out unasked \(no nftables\)\.$/);
  assert.equal(stateText({ state: 'enforced', defaults: [], user: [], denied: [] }).label, 'Enforced');
});
