import assert from 'node:assert/strict';
import { test } from 'node:test';
import { initial, type Connection } from '@fairlead/core';
import { question } from '../src/clipboard.ts';
import { bannerOf, outageMs, progressOf } from '../src/model.ts';
import { duration, size } from '../src/recordings.ts';
import { summary, valid } from '../src/search.ts';
import { shortcut } from '../src/shortcuts.ts';
import { resized } from '../src/typesize.ts';

test('a paste of lines is asked about where each would run', () => {
  assert.equal(question('ls -l', false), null);
  assert.equal(question('a\nb', true), null);
  assert.deepEqual(question('ls\n', false), { title: 'Paste a line and run it?', preview: 'ls' });
  assert.deepEqual(question('a\r\nb\rc\x1b', false), { title: 'Paste 3 lines?', preview: 'a\nb\nc␛' });
  const long = question(Array.from({ length: 9 }, (_, i) => `${i}`.repeat(80)).join('\n'), false);
  assert.match(long?.preview ?? '', /^0{72}…\n(.*\n){4}… and 4 more$/);
});

const lost = (more: Partial<Connection>): Connection => ({ ...initial(), everAttached: true, lostAt: 1000, failures: 1, phase: { name: 'lost', retryAt: 4000 }, ...more });

test('a short outage is not worth a word, a longer one says what is tried and what is kept', () => {
  assert.equal(bannerOf(lost({}), 1000 + outageMs - 1, false, 0), null);
  const banner = bannerOf(lost({ failures: 3 }), 2000, false, 5);
  assert.deepEqual(banner, { kind: 'lost', text: 'Connection lost. Reconnecting…', detail: 'Attempt 3 in 2 s', action: 'retry', kept: '5 characters you typed will be sent.' });
  assert.equal(bannerOf(lost({ phase: { name: 'preparing' } }), 9000, false, 1)?.kept, '1 character you typed will be sent.');
  assert.equal(bannerOf(lost({ phase: { name: 'attached', at: 0, url: '' }, lostAt: null }), 9000, false, 5), null);
});

test('a large paste has progress, keys have none', () => {
  assert.equal(progressOf({ waiting: 0, done: 1 }), null);
  assert.equal(progressOf({ waiting: 10, done: 0 }), null);
  assert.equal(progressOf({ waiting: 3 << 20, done: 0.25 }), 25);
  assert.equal(progressOf({ waiting: 1024, done: 0.99 }), 99);
});

test('keys of the page are told from the program’s', () => {
  const key = (text: string) => {
    const parts = text.split('-');
    const name = parts.at(-1) ?? '';
    return shortcut({
      key: name === 'minus' ? '-' : name, code: name.length === 1 && name >= 'A' ? `Key${name}` : name,
      ctrlKey: parts.includes('ctrl'), shiftKey: parts.includes('shift'), altKey: parts.includes('alt'), metaKey: parts.includes('cmd'),
    });
  };
  const found: Record<string, string> = { 'ctrl-shift-F': 'find', 'cmd-shift-F': 'find', 'ctrl-shift-C': 'copy', 'cmd-C': 'copy', 'ctrl-Insert': 'copy', 'ctrl-+': 'bigger', 'ctrl-=': 'bigger', 'ctrl-minus': 'smaller', 'cmd-0': 'normal' };
  for (const [keys, action] of Object.entries(found)) assert.equal(key(keys), action, keys);
  for (const keys of ['ctrl-C', 'ctrl-F', 'cmd-shift-C', 'shift-Insert', 'ctrl-alt-0', 'ctrl-shift-0', 'ctrl-shift-_', '+', 'ctrl-cmd-C']) assert.equal(key(keys), undefined, keys);
});

test('text sizes stay legible', () => {
  assert.equal(resized(null, 14, 'bigger'), 15);
  assert.equal(resized(28, 14, 'bigger'), 28);
  assert.equal(resized(10, 14, 'smaller'), 10);
  assert.equal(resized(20, 14, 'normal'), null);
});

test('what a search found', () => {
  assert.equal(summary('', -1, 0), '');
  assert.equal(summary('x', -1, 0), 'No matches');
  assert.equal(summary('x', 2, 17), '3 of 17');
  assert.equal(summary('x', -1, 2000), '2000+');
  assert.ok(valid({ text: '(', regex: false, caseSensitive: false }));
  assert.ok(!valid({ text: '(', regex: true, caseSensitive: false }));
});

test('durations and sizes', () => {
  assert.deepEqual([0, 61_000, 3_725_400].map(duration), ['0:00', '1:01', '1:02:05']);
  assert.deepEqual([5, 1536, 300_000, 5 << 20].map(size), ['5 B', '1.5 KiB', '293 KiB', '5.0 MiB']);
});
