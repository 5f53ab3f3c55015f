import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Changes, Unsettled } from './changes.ts';
import { ApiError } from './http.ts';

// world plays relays: each step is a status, 200 for success. keys are those that
// were asked by.
function world(...steps: number[]) {
  const keys: string[] = [];
  let made = 0;
  const clock = { now: 0 };
  const changes = new Changes({
    clock: { now: () => clock.now, date: () => 0, setTimeout: (run) => run(), clearTimeout: () => {} },
    random: () => 0.5,
    uuid: () => `key${++made}`,
  });
  const make = (what = 'create') => changes.make(what, (key) => {
    keys.push(key);
    const status = steps.shift() ?? 200;
    return status === 200 ? Promise.resolve(`done by ${key}`) : Promise.reject(new ApiError(status, `status ${status}`));
  });
  return { make, keys, clock, left: () => steps.length };
}

const times = (n: number, status: number) => Array.from({ length: n }, () => status);

test('Found 23: what may have been done is asked for by the same key, and by no other', async () => {
  const w = world(502, 502, 503, 200);
  assert.equal(await w.make(), 'done by key1');
  assert.deepEqual(w.keys, ['key1', 'key1', 'key1', 'key1']);
  assert.equal(await w.make(), 'done by key2'); // it is settled: another change
});

test('Found 23: until it is known, to make it again is to ask', async () => {
  const w = world(...times(8, 502), ...times(8, 503), 0);
  await assert.rejects(w.make(), Unsettled);
  await assert.rejects(w.make(), Unsettled, '503 says nothing of the first time');
  assert.equal(await w.make('another'), 'done by key2', 'other changes are others'); // after one lost answer
  assert.equal(await w.make(), 'done by key1');
  assert.equal(w.left(), 0);
  assert.equal(await w.make(), 'done by key3');
});

test('Found 23: what was not done may be repeated', async () => {
  const w = world(...times(3, 503), 502, 401, 409, 200);
  await assert.rejects(w.make(), (error) => error instanceof ApiError && error.status === 503); // nobody has had it
  await assert.rejects(w.make(), (error) => error instanceof ApiError && error.status === 401); // too late to be run
  await assert.rejects(w.make(), (error) => error instanceof ApiError && error.status === 409);
  assert.equal(await w.make(), 'done by key4');
  assert.deepEqual([...new Set(w.keys)], ['key1', 'key2', 'key3', 'key4']);
});

test('Found 23: a change that may be made twice leaves no key behind', async () => {
  const w = world(...times(8, 0));
  await assert.rejects(w.make(''), Unsettled);
  assert.equal(await w.make(''), 'done by key2');
});

test('Found 23: long after, a person means another change', async () => {
  const w = world(...times(8, 502), ...times(8, 502));
  await assert.rejects(w.make(), Unsettled);
  w.clock.now = 119_999;
  await assert.rejects(w.make(), Unsettled);
  w.clock.now = 240_000;
  assert.equal(await w.make(), 'done by key2');
});
