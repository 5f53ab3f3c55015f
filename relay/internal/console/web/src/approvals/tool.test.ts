import assert from 'node:assert/strict';
import { test } from 'node:test';
import { partsOf, prefixOf, rulesOf, textLines, toolView } from './tool.ts';

const shown = (input: unknown) => partsOf(input).map(({ label, lines }) => `${label}: ${lines.map(({ sign, text }) => sign + text).join('\\n')}`);

test('a command, a change and anything else are shown whole', () => {
  assert.deepEqual(shown({ command: 'ls -l\n\techo hi' }), [': ls -l\\n\techo hi']);
  assert.deepEqual(shown({ command: 'ls', description: 'x' }), [': ls', 'What it is for, as the coding agent says: x']);
  assert.deepEqual(shown({ command: 'ls', run_in_background: true }), [': ls', 'Also: {\\n  "run_in_background": true\\n}']);
  assert.deepEqual(shown({ file_path: '/w/a.go', old_string: 'a\nb', new_string: 'c' }), ['File: /w/a.go', 'Change: -a\\n-b\\n+c']);
  assert.deepEqual(shown({ file_path: '/w/a.go', content: 'x' }), ['File: /w/a.go', 'Content: +x']);
  assert.deepEqual(shown({ file_path: '/w/a.go', content: '' }), ['File: /w/a.go', 'Content: (empty)']);
  assert.deepEqual(shown({ file_path: '/w/a', edits: [{ old_string: 'a', new_string: '' }, { old_string: '', new_string: 'b' }] }), ['File: /w/a', 'Change: -a', 'Change: +b']);
  assert.deepEqual(shown({ file_path: '/w/a', edits: [{ old_string: 'a', new_string: 'b', replace_all: true }] }).length, 2, 'an edit with another member is shown as it is');
  assert.deepEqual(shown({ plan: '# Do it' }), ['Plan: # Do it']);
  assert.deepEqual(shown({ url: 'https://a.example' }), [': {\\n  "url": "https://a.example"\\n}']);
  assert.deepEqual(shown({}), []);
  assert.deepEqual(shown([1]), [': [\\n  1\\n]']);
  assert.deepEqual(shown('text'), [': "text"']);
  assert.deepEqual(shown({ command: ['rm', '-rf'], file_path: 7 }), [': {\\n  "command": [\\n    "rm",\\n    "-rf"\\n  ],\\n  "file_path": 7\\n}']);
});

test('nothing in it is invisible, and nothing is markup', () => {
  assert.deepEqual(textLines('a\u202eb\r\n<b>\u001b[31m'), [{ sign: '', text: 'a⟨U+202E⟩b⟨U+000D⟩' }, { sign: '', text: '<b>⟨U+001B⟩[31m' }]);
  assert.deepEqual(shown({ command: 'ls', '\u200bx': '\u2066' }), [': ls', 'Also: {\\n  "⟨U+200B⟩x": "⟨U+2066⟩"\\n}']);
  assert.equal(toolView({ tool: 'Ba\u202esh' }).tool, 'Ba⟨U+202E⟩sh');
});

test('a prefix is offered for one plain command alone', () => {
  assert.equal(prefixOf('git status --short'), 'git status');
  assert.equal(prefixOf('  npm run build'), 'npm run');
  assert.equal(prefixOf('ls -l /tmp'), 'ls');
  assert.equal(prefixOf('git -C /x status'), 'git');
  for (const command of ['ls; rm -rf /', 'a && b', 'a | b', 'a > b', 'echo $(b)', 'echo `b`', 'a\nb', 'X=1 a', '/bin/sh x', '', 'sh -c "x"', 'a & b', '\u202els']) assert.equal(prefixOf(command), undefined, command);
});

test('what may be remembered', () => {
  assert.deepEqual(rulesOf('Bash', { command: 'go test ./...' }).map(({ entry }) => entry), ['Bash(go test:*)', 'Bash']);
  assert.deepEqual(rulesOf('Bash', { command: 'a; b' }).map(({ entry }) => entry), ['Bash']);
  assert.deepEqual(rulesOf('mcp__x__y', { command: 'ls' }).map(({ entry }) => entry), ['mcp__x__y']);
  assert.deepEqual(rulesOf('AskUserQuestion', {}), []);
  assert.deepEqual(toolView({ tool: 'ExitPlanMode', input: { plan: 'x' } }).rules, []);
  assert.ok(toolView({ tool: 'AskUserQuestion', input: { questions: [] } }).answered);
});

test('what is too long is known by its hash', () => {
  assert.match(toolView({ tool: 'Write', input_sha256: 'abcd' }).parts[0]?.lines[0]?.text ?? '', /too long.*SHA-256 abcd$/);
  assert.deepEqual(toolView({ tool: 'Bash' }).parts, []);
  assert.deepEqual(toolView({ tool: 'Bash', input: null }).parts.length, 1);
});

test('any input is shown somehow', () => {
  const seed = Date.now() >>> 0;
  let x = seed || 1;
  const random = (n: number) => ((x = (Math.imul(x, 1664525) + 1013904223) >>> 0), x % n);
  const names = ['command', 'file_path', 'old_string', 'new_string', 'edits', 'content', 'plan', 'x'];
  const value = (depth: number): unknown => {
    switch (random(depth > 3 ? 4 : 6)) {
      case 0: return null;
      case 1: return random(2) === 0;
      case 2: return random(1000);
      case 3: return String.fromCharCode(...Array.from({ length: random(8) }, () => random(0x300)));
      case 4: return Array.from({ length: random(4) }, () => value(depth + 1));
      default: return Object.fromEntries(Array.from({ length: random(5) }, () => [names[random(names.length)] ?? 'x', value(depth + 1)]));
    }
  };
  for (let i = 0; i < 5_000; i++) {
    const input = value(0);
    for (const { text } of partsOf(input).flatMap(({ lines }) => lines)) {
      assert.doesNotMatch(text.replaceAll('\t', ''), /[\p{Cc}\p{Cf}]/u, `seed ${seed}: ${JSON.stringify(input)}`);
    }
  }
});
