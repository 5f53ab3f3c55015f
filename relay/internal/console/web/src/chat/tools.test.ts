import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changeOf, choicesOf, ruleOf, useOf } from './tools.ts';

test('a command, a change and anything else', () => {
  assert.deepEqual(useOf('Bash', { command: 'ls -l\npwd', description: '' }), { title: 'ls -l', command: 'ls -l\npwd' });
  assert.deepEqual(useOf('Write', { file_path: 'a.txt', content: 'x\n' }), { title: 'a.txt', change: [{ sign: '+', text: 'x' }] });
  assert.equal(useOf('Read', { file_path: 'a.txt' }).title, 'a.txt');
  assert.deepEqual(useOf('Odd', [1]), { title: 'Odd', rest: '[\n  1\n]' });
});

test('a change has a few lines around it', () => {
  const before = Array.from({ length: 20 }, (_, i) => `line ${i}`).join('\n');
  const lines = changeOf(before, before.replace('line 10', 'other'));
  assert.deepEqual(lines.map(({ sign, text }) => sign + text), [
    ' line 7', ' line 8', ' line 9', '-line 10', '+other', ' line 11', ' line 12', ' line 13',
  ]);
});

test('a question has choices', () => {
  const [choice] = choicesOf('AskUserQuestion', { questions: [{ question: 'Which?', header: 'DB', multiSelect: true, options: [{ label: 'a', description: 'b' }, 7] }] });
  assert.deepEqual(choice, { question: 'Which?', header: 'DB', several: true, options: [{ label: 'a', description: 'b' }] });
  assert.deepEqual(choicesOf('Bash', {}), []);
});

test('always means a program, or the tool', () => {
  assert.equal(ruleOf('Bash', { command: 'git status' }), 'Bash(git:*)');
  assert.equal(ruleOf('Bash', { command: '$(evil) x' }), 'Bash');
  assert.equal(ruleOf('Edit', {}), 'Edit');
});
