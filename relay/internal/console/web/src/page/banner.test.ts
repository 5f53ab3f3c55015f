import assert from 'node:assert/strict';
import { test } from 'node:test';
import { initial, type Connection } from '@fairlead/core';
import { bannerOf, outageMs, progressOf } from './model.ts';

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
