import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  answerOf, askingText, cameOf, codeOf, configText, found, labelOf, modeOf, policyText, problemOf, read, siteOf, sourceCommands, sumOf, withSite, write,
} from './model.ts';

const push = { at: 0, hostname: 'laptop', sequence: 1, written: 1_204, dropped: 0, refused: 0 };
const begun = { pairing: 'pr_a', sinkPublicKey: 'KEY=', sinkHostname: 'ses_a.sb_1', expiresAt: 0 };

test('a push in words', () => {
  assert.equal(cameOf(push), `${(1_204).toLocaleString()} cookies written`);
  assert.equal(cameOf({ ...push, written: 1, dropped: 3, refused: 2 }), '1 cookie written · 3 kept back by the policy below · 2 refused');
  assert.equal(cameOf(undefined), '');
});

test('a pairing is called something, and nothing invisible', () => {
  assert.equal(labelOf({ id: 'pr_a', name: 'lap\u202etop' }), 'lap⟨U+202E⟩top');
  assert.equal(labelOf({ id: 'pr_a', name: '', last: push }), 'laptop');
  assert.equal(labelOf({ id: 'pr_a', name: '' }), 'pr_a');
});

test('sites are summed and found', () => {
  const sites = [{ site: 'Github.com', cookies: 3, pairing: 'a' }, { site: 'b.example', cookies: 1, pairing: 'a' }, { site: 'github.com', cookies: 9, pairing: 'b' }];
  assert.equal(sumOf('a', sites), '4 cookies of 2 sites');
  assert.equal(sumOf('b', sites), '9 cookies of 1 site');
  assert.equal(sumOf('c', sites), 'No cookies of it are here.');
  assert.deepEqual(found(sites, ' GITHUB ').map((s) => s.pairing), ['a', 'b']);
});

test('the policy in words; one that can’t be read lets nothing pass', () => {
  assert.equal(policyText({ policy: 'sync-all', domains: [] }), 'Every site that somebody sends is taken.');
  assert.equal(policyText({ policy: 'blocklist', domains: [{ pattern: 'a' }] }), 'Every site is taken but those of 1 pattern.');
  assert.equal(policyText({ policy: 'allowlist', domains: [] }), 'No site is taken.');
  assert.equal(policyText({ policy: '', domains: [], error: 'it is broken' }), 'it is broken');
  assert.equal(modeOf({ policy: '', domains: [], error: 'it is broken' }), 'allowlist');
  assert.equal(modeOf({ policy: 'sync-all', domains: [] }), 'all');
});

test('patterns are written as lines and read again', () => {
  const domains = [{ pattern: 'github.com', description: 'work # all of it' }, { pattern: '%.x_y#z%' }];
  assert.deepEqual(read(write(domains)), domains);
  assert.deepEqual(read(' a.test\t#  why \r\n\n#\n b.test # '), [{ pattern: 'a.test', description: 'why' }, { pattern: '#' }, { pattern: 'b.test' }]);
  assert.notEqual(problemOf('blocklist', []), '');
  assert.equal(problemOf('allowlist', []), '');
  assert.notEqual(problemOf('allowlist', Array.from({ length: 1_001 }, () => ({ pattern: 'a' }))), '');
});

test('a site is added with what is below it, once', () => {
  assert.deepEqual(withSite([{ pattern: 'GitHub.com' }], 'github.com').map((d) => d.pattern), ['GitHub.com', '%.github.com']);
  for (const [typed, site] of [['https://github.com:443/x?y', 'github.com'], ['*.github.com', 'github.com'], [' .GitHub.com', 'github.com'], ['bücher.example', 'xn--bcher-kva.example'], ['a b', ''], ['', ''], ['%', '']] as const) {
    assert.equal(siteOf(typed), site, typed);
  }
});

test('codes', () => {
  assert.equal(codeOf('abcd efgh-ijkl'), 'ABCD-EFGH-IJKL');
  assert.equal(codeOf('ABCDEFGH'), 'ABCD-EFGH');
  for (const wrong of ['', 'ABCD-EFG', 'ABCD-EFG1', 'ABCD-EFGH-IJ', 'ABCD-EFGH-IJKL-MNOP']) assert.equal(codeOf(wrong), '', wrong);
});

test('the command that asks carries nothing as an argument', () => {
  const text = askingText(begun, 'ABCD-EFGH');
  const [command = '', body = '', end] = text.split('\n');
  assert.ok(!command.includes('ABCD'));
  assert.equal(end, 'END');
  assert.deepEqual(JSON.parse(body), { protocol_version: 1, code: 'ABCD-EFGH', sink_public_key: 'KEY=', sink_hostname: 'ses_a.sb_1' });
  const hostile = askingText({ ...begun, sinkHostname: 'x\nEND\nrm \u202e' }, 'ABCD-EFGH');
  assert.equal(hostile.split('\n').length, 3);
  assert.ok(/^[\x20-\x7e\n]*$/.test(hostile));
  assert.equal((JSON.parse(hostile.split('\n')[1] ?? '') as { sink_hostname: string }).sink_hostname, 'x\nEND\nrm \u202e');
  assert.equal(configText('https://r/sync\nrm', 'h').split('\n').length, 4);
  assert.ok(sourceCommands('ses_a').includes('--session ses_a'));
});

test('what that prints is read, or it is said what is wrong', () => {
  const key = `${'A'.repeat(43)}=`;
  assert.deepEqual(answerOf(` {"protocol_version":1,"source_public_key":"${key}","source_hostname":"lap","fingerprint":"0A0B0C0D"}\n`), { sourcePublicKey: key, sourceHostname: 'lap', fingerprint: '0a0b0c0d' });
  for (const wrong of ['', 'curl: (7) refused', 'null', '[]', '{}', '{"error":"invalid code"}', `{"protocol_version":2,"source_public_key":"${key}","source_hostname":"lap","fingerprint":"a"}`, '{"protocol_version":1,"source_public_key":"AA","source_hostname":"lap","fingerprint":"a"}']) {
    assert.equal(typeof answerOf(wrong), 'string', wrong);
  }
  assert.match(answerOf('{"error":"invalid code"}') as string, /invalid code/);
});
