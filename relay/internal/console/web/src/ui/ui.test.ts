import assert from 'node:assert/strict';
import { test } from 'node:test';
import { question } from './clipboard.ts';
import { size } from './format.ts';
import { shortcut } from './shortcuts.ts';
import { resized } from './typesize.ts';

test('a paste of lines is asked about where each would run', () => {
  assert.equal(question('ls -l', false), null);
  assert.equal(question('a\nb', true), null);
  assert.deepEqual(question('ls\n', false), { title: 'Paste a line and run it?', preview: 'ls' });
  assert.deepEqual(question('a\r\nb\rc\x1b', false), { title: 'Paste 3 lines?', preview: 'a\nb\nc␛' });
  const long = question(Array.from({ length: 9 }, (_, i) => `${i}`.repeat(80)).join('\n'), false);
  assert.match(long?.preview ?? '', /^0{72}…\n(.*\n){4}… and 4 more$/);
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

test('sizes', () => {
  assert.deepEqual([5, 1536, 300_000, 5 << 20].map(size), ['5 B', '1.5 KiB', '293 KiB', '5.0 MiB']);
});
