import assert from 'node:assert/strict';
import { test } from 'node:test';
import { excessive, mostRepeats } from './limits.ts';

test('a count that no program means is ignored, any other is not', () => {
  for (const params of [[], [0], [1], [mostRepeats], [[2147483647]]]) assert.equal(excessive(params), false);
  for (const params of [[mostRepeats + 1], [2147483647], [2147483647, 1]]) assert.equal(excessive(params), true);
});
