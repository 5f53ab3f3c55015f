import assert from 'node:assert/strict';
import { test } from 'node:test';
import { duration } from './recordings.ts';

test('durations', () => {
  assert.deepEqual([0, 61_000, 3_725_400].map(duration), ['0:00', '1:01', '1:02:05']);
});
