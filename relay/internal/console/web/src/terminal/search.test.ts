import assert from 'node:assert/strict';
import { test } from 'node:test';
import { summary, valid } from './search.ts';

test('what a search found', () => {
  assert.equal(summary('', -1, 0), '');
  assert.equal(summary('x', -1, 0), 'No matches');
  assert.equal(summary('x', 2, 17), '3 of 17');
  assert.equal(summary('x', -1, 2000), '2000+');
  assert.ok(valid({ text: '(', regex: false, caseSensitive: false }));
  assert.ok(!valid({ text: '(', regex: true, caseSensitive: false }));
});
