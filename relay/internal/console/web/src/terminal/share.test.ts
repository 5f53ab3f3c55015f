import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TerminalInfo } from '@fairlead/core';
import { shareOf } from './share.ts';

const list: TerminalInfo[] = ['a', 'b', 'c'].map((id) => ({ id, cols: 80, rows: 24, created_at: 0, ...(id === 'c' ? { exited: {} } : {}) }));
const labels = new Map([['a', 'shell 1'], ['b', 'shell 2'], ['c', 'shell 3']]);

test('everybody sees to whose programs a terminal is open', () => {
  const mark = (shared: string) => shareOf('a', shared, list, labels, false);
  assert.deepEqual(mark('none'), { mark: '', with: 'none', choices: [] });
  assert.equal(mark('session').mark, 'Open to all programs here');
  assert.equal(mark('b').mark, 'Open to programs of shell 2');
  assert.equal(mark('gone').mark, 'Open to programs of another terminal');
});

test('who may control it chooses among the others that run, and sees what is chosen', () => {
  const choices = (shared: string) => shareOf('a', shared, list, labels, true).choices.map((choice) => choice.with);
  assert.deepEqual(choices('none'), ['none', 'b', 'session']);
  assert.deepEqual(choices('c'), ['none', 'b', 'c', 'session']);
  assert.deepEqual(choices('unknown'), ['none', 'b', 'unknown', 'session']);
});
