import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerOf, changeOf, choicesOf, problemOf, useOf } from './tools.ts';

test('a command, a change and anything else', () => {
  assert.deepEqual(useOf({ command: 'ls -l\npwd', description: '' }), { title: 'ls -l', pieces: [{ label: 'Command', text: 'ls -l\npwd' }, { label: 'What it is for, as the coding agent says', text: '' }] });
  assert.deepEqual(useOf({ file_path: 'a.txt', content: 'x\n' }), { title: 'a.txt', pieces: [{ label: 'File', text: 'a.txt' }, { label: 'Content', change: [{ sign: '+', text: 'x' }] }] });
  assert.equal(useOf({ file_path: 'a.txt' }).title, 'a.txt');
  assert.equal(useOf({ pattern: 'x\ny' }).title, 'x');
  assert.deepEqual(useOf([1]), { title: '', pieces: [{ label: 'Input', text: '[\n  1\n]' }] });
  assert.deepEqual(useOf(undefined), { title: '', pieces: [] });
});

test('what stands beside a command or a change is not left out', () => {
  const beside = (input: object) => useOf(input).pieces.filter((piece) => piece.label === 'Input').map((piece) => ('text' in piece ? JSON.parse(piece.text) : undefined));
  assert.deepEqual(beside({ command: 'ls', run_in_background: true, dangerouslyDisableSandbox: true }), [{ run_in_background: true, dangerouslyDisableSandbox: true }]);
  assert.deepEqual(beside({ file_path: 'a', old_string: 'a', new_string: 'b', replace_all: true }), [{ replace_all: true }]);
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

test('an answer says something', () => {
  assert.equal(answerOf([], '  '), '');
  assert.equal(answerOf(['a', 'b'], ' c '), 'a, b, c');
  const choice = (several: boolean, options: number) => ({ question: 'Which?', header: '', several, options: Array(options).fill({ label: 'a', description: '' }) });
  assert.equal(problemOf([choice(false, 2)], 0), 'Choose one, or write another answer.');
  assert.equal(problemOf([choice(false, 2), choice(true, 2)], 1), 'Choose at least one, or write another answer, to “Which?”.');
  assert.equal(problemOf([choice(false, 0)], 0), 'Write an answer.');
});
