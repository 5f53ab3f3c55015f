import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, atRest, change, done, due, fail, isLeft, isPace, number, revive, take, type Pace } from './when.ts';

const later = { again: 'later', afterMs: 0 } as const;

test('a push waits until nothing changes, and not for ever', () => {
  assert.equal(due(atRest, 0), undefined);
  let p = change(atRest, 10_000);
  assert.equal(due(p, 10_000), 10_500);
  p = change(p, 10_400);
  assert.equal(due(p, 10_400), 10_900);
  for (let now = 10_800; now < 20_000; now += 400) p = change(p, now);
  assert.equal(due(p, 20_000), 12_000);
});

test('pushes are two seconds apart, one at a time, and each change is in one', () => {
  let p = take(change(atRest, 10_000), 10_500);
  assert.equal(due(p, 10_500), undefined);
  p = change(p, 10_600);
  assert.equal(due(p, 10_600), undefined, 'one is under way');
  assert.ok(isLeft(p));
  p = done(p);
  assert.equal(due(p, 10_700), 12_500);
  p = done(take(p, 12_500));
  assert.equal(due(p, 12_500), undefined);
  assert.ok(!isLeft(p));
});

test('a worker that dies leaves what it had taken', () => {
  const p = take(change(atRest, 10_000), 10_500);
  assert.deepEqual(revive(p).changed, [10_000, 10_000]);
  assert.deepEqual(revive(change(p, 11_000)).changed, [10_000, 11_000]);
  assert.equal(revive(atRest).changed, null);
  assert.equal(revive(number(p, 10_600)).sequence, 10_600);
});

test('sequences only grow, also when the clock goes back', () => {
  let p = atRest;
  let before = 0;
  for (const now of [5_000, 5_000, 4_000, 0, 9_000, 8_999]) {
    p = number(p, now);
    assert.ok(p.sequence > before, String(now));
    before = p.sequence;
  }
  assert.equal(before, 9_001);
});

test('what failed is tried again, later each time, and as an answer asks', () => {
  let p = take(change(atRest, 10_000), 10_000);
  const waits: number[] = [];
  for (let i = 0; i < 8; i++) {
    p = fail(p, later, 10_000, 1);
    waits.push(p.notBefore - 10_000);
    assert.ok((due(p, 10_000) ?? 0) >= p.notBefore);
    p = take(p, 10_000);
  }
  assert.deepEqual(waits, [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
  assert.equal(fail(p, later, 10_000, 0).notBefore, 40_000);
  assert.equal(fail(p, { again: 'later', afterMs: 90_000 }, 10_000, 1).notBefore, 100_000);
  assert.equal(fail(p, { again: 'later', afterMs: 1e12 }, 10_000, 1).notBefore, 10_000 + 3_600_000);
  assert.equal(done(p).failures, 0);
});

test('what another try won’t mend waits for a change, or for the person', () => {
  const begun = take(change(atRest, 10_000), 10_500);
  const stuck = fail(begun, { again: 'change', afterMs: 0 }, 10_600, 1);
  assert.equal(due(stuck, 99_000), undefined);
  assert.ok(!isLeft(stuck));
  assert.ok(due(change(stuck, 99_000), 99_000) !== undefined);
  assert.ok(due(fail(change(begun, 10_550), { again: 'change', afterMs: 0 }, 10_600, 1), 10_600) !== undefined, 'it has changed meanwhile');
  const ended = fail(begun, { again: 'asked', afterMs: 0 }, 10_600, 1);
  assert.equal(due(change(ended, 99_000), 99_000), undefined);
  assert.ok((due(ask(ended, 99_000), 99_000) ?? Infinity) <= 99_000);
});

test('a clock that was turned back keeps nothing waiting', () => {
  const p = fail(take(change(atRest, 1e12), 1e12), later, 1e12, 1);
  assert.equal(due(p, 5_000), 5_000);
});

test('only what is a pace is taken from storage', () => {
  assert.ok(isPace(atRest) && isPace(JSON.parse(JSON.stringify(take(change(atRest, 5), 6)))));
  for (const other of [null, {}, { ...atRest, sequence: '5' }, { ...atRest, sequence: 1.5 }, { ...atRest, changed: [1] }, { ...atRest, halted: 'x' }, { ...atRest, taken: undefined }]) assert.equal(isPace(other), false);
});

test('any order of events: one push at a time, apart, none forgotten', () => {
  let seed = 7;
  const random = (n: number): number => (seed = (seed * 1_103_515_245 + 12_345) & 0x7fffffff) % n;
  for (let round = 0; round < 300; round++) {
    let p: Pace = atRest;
    let [now, began, open, sequence] = [1_000_000, 0, 0, 0];
    for (let i = 0; i < 60; i++) {
      now += random(900);
      const at = due(p, now);
      if (p.taken === null && at !== undefined && at <= now) {
        assert.ok(now - began >= 2_000 || began === 0, 'too soon');
        p = number(take(p, now), now);
        assert.ok(p.sequence > sequence);
        [began, sequence] = [now, p.sequence];
      } else if (p.taken !== null && random(3) === 0) {
        p = random(2) === 0 ? done(p) : fail(p, later, now, Math.random());
        if (p.failures === 0 && p.changed === null) open = 0;
      } else if (random(2) === 0) {
        p = change(p, now);
        open++;
      } else if (random(5) === 0) p = revive(p);
      assert.ok(open === 0 || isLeft(p), 'a change is forgotten');
    }
  }
});
