import assert from 'node:assert/strict';
import { test } from 'node:test';
import { alone, idle, Pulse, seen, unseen, type Patience } from './pulse.ts';

// live runs a pulse for so long against a relay that answers until it stands
// still, and returns when it was left and how often it was asked.
function live(patience: Patience, forMs: number, stillAt = Infinity, answers = true) {
  const pulse = new Pulse();
  let [now, asked, pongAt] = [0, 0, Infinity];
  let next = 0;
  while (now <= forMs) {
    if (pongAt <= next) {
      now = pongAt;
      pongAt = Infinity;
      pulse.heard(now, true);
      continue;
    }
    now = next;
    const { act, laterMs } = pulse.due(now, patience);
    if (act === 'leave') return { left: now, asked };
    if (act === 'ask') {
      asked++;
      if (answers && now < stillAt) pongAt = now + 40;
    }
    assert.ok(laterMs > 0);
    next = now + laterMs;
  }
  return { left: null, asked };
}

test('a relay that answers is stayed with', () => {
  for (const patience of [seen, alone, unseen, idle]) assert.equal(live(patience, 600_000).left, null);
});

test('one that stands still is left in time', () => {
  for (const stillAt of [100, 1_000, 10_000, 12_345]) {
    const left = live(seen, 60_000, stillAt).left ?? Infinity;
    assert.ok(left - stillAt <= 3_100, `left ${left - stillAt} ms later`);
    const hidden = live(unseen, 60_000, stillAt).left ?? Infinity;
    assert.ok(hidden - stillAt < 8_000, `a hidden page left ${hidden - stillAt} ms later`);
  }
});

test('silence says nothing of a relay that never answers, and it is hardly asked', () => {
  const { left, asked } = live(seen, 600_000, Infinity, false);
  assert.equal(left, null);
  assert.ok(asked <= 600_000 / idle.quietMs + 1, `asked ${asked} times`);
});

test('hidden pages ask rarely', () => {
  assert.ok(live(idle, 600_000).asked <= 25);
  assert.ok(live(seen, 600_000).asked <= 401);
});

test('it is asked at once, whatever has come', () => {
  const pulse = new Pulse();
  pulse.heard(1_000, false);
  assert.equal(pulse.due(1_000, seen).act, 'ask');
  pulse.heard(1_001, false);
  assert.deepEqual(pulse.due(1_001, seen), { act: null, laterMs: seen.quietMs });
});

test('what comes by itself is an answer', () => {
  const pulse = new Pulse();
  pulse.due(0, seen);
  pulse.heard(0, true);
  for (let now = 0; now < 100_000; now += 1_000) {
    pulse.heard(now, false);
    assert.equal(pulse.due(now + 900, seen).act, null);
  }
});

test('a machine that slept asks before it leaves', () => {
  const pulse = new Pulse();
  pulse.due(0, seen);
  pulse.heard(0, true);
  assert.equal(pulse.due(1_500, seen).act, 'ask');
  assert.equal(pulse.due(1_500 + 3_600_000, seen).act, 'ask');
  assert.equal(pulse.due(1_500 + 3_600_000 + 1_500, seen).act, 'leave');
});
