import assert from 'node:assert/strict';
import { test } from 'node:test';
import { domainsOf, flagsOf, looksLikeFile, parse, problemOf, requestOf, suggest } from './env.ts';

const values = (text: string) => Object.fromEntries(parse(text).additions.map(({ name, value }) => [name, value]));

test('a .env file', () => {
  assert.deepEqual(values('A=1\r\nexport B=two # why\n# C=3\n\nD="x\\n\\"y\\" $A"\nE=\'#no\\n\'\nF=\n  G = a#b \n'), {
    A: '1', B: 'two', D: 'x\n"y" $A', E: '#no\\n', F: '', G: 'a#b',
  });
  assert.deepEqual(values('KEY="-----BEGIN\nabc\n-----END"\nNEXT=1'), { KEY: '-----BEGIN\nabc\n-----END', NEXT: '1' });
  assert.deepEqual(values('A=1\nA=2'), { A: '2' });
  assert.deepEqual(parse('A=1\nwhat\nB="no end\nC=3').skipped, [2, 3]);
  assert.deepEqual(parse('X="a\nb"\nwhat').skipped, [3]);
  assert.deepEqual(values('\ufeffA=1'), { A: '1' });
});

test('what a paste is', () => {
  assert.ok(looksLikeFile('# c\n\nexport A=1'));
  assert.ok(!looksLikeFile('-----BEGIN KEY-----\nabc=\n'));
  assert.ok(!looksLikeFile('API_KEY'));
});

test('secret unless too short, brokered where the provider is known', () => {
  assert.deepEqual(suggest('OPENAI_API_KEY', 'sk-12345'), { name: 'OPENAI_API_KEY', value: 'sk-12345', secret: true, brokered: true, domains: [] });
  assert.equal(suggest('PORT', '8080').secret, false);
  assert.equal(suggest('TOKEN', 'abcdefgh').brokered, false);
  assert.ok(suggest('T', 'äöüß').secret, '8 bytes');
});

test('what is asked for', () => {
  const acme = { ...suggest('ACME', 'acme-key-1'), brokered: true, domains: ['a.example', 'b.example'] };
  assert.deepEqual(requestOf([suggest('PORT', '1'), acme, { ...suggest('OPENAI_API_KEY', 'sk-12345'), domains: ['x'] }], true), {
    apply_now: true,
    set: { PORT: '1' },
    secrets: { ACME: { value: 'acme-key-1', broker_protected: true }, OPENAI_API_KEY: { value: 'sk-12345', broker_protected: true } },
    approved_domains: [{ secret_name: 'ACME', domain: 'a.example' }, { secret_name: 'ACME', domain: 'b.example' }],
  });
});

test('what is wrong is said, without the value', () => {
  const wrong = (name: string, value: string, more = {}) => problemOf({ name, value, secret: true, brokered: false, domains: [], ...more });
  assert.equal(wrong('A', 'long enough'), '');
  assert.match(wrong('a', 'long enough'), /capital letters/);
  assert.match(wrong('1A', 'long enough'), /capital letters/);
  assert.match(wrong('A', 'hunter2'), /8 bytes/);
  assert.doesNotMatch(wrong('A', 'hunter2'), /hunter/);
  assert.equal(wrong('A', 'hunter2', { secret: false }), '');
  assert.match(wrong('A', 'long enough', { domains: ['https://x'] }), /not the name of a host/);
  assert.deepEqual(domainsOf(' a.example, b.example\na.example '), ['a.example', 'b.example']);
});

test('what is set, in words', () => {
  assert.deepEqual(flagsOf({ name: 'A', secret: false, broker_protected: false }), ['plain']);
  assert.deepEqual(flagsOf({ name: 'A', secret: true, broker_protected: true, domains: ['a.example'] }), ['secret', 'broker only', 'to a.example']);
});
