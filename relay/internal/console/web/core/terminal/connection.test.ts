import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backoff, capMs, firstMs, leastMs, quickAttempts, quickMs } from '../backoff.ts';
import type { Attached } from '../protocol.ts';
import { hasEnded, initial, openMs, stableMs, step, type Connection, type Effect, type Event } from './connection.ts';

// run steps through events, one millisecond apart unless `at` says otherwise.
function run(c: Connection, events: (Event & { at?: number })[], random = 0.5): [Connection, Effect[]] {
  let effects: Effect[] = [];
  let now = 0;
  for (const event of events) {
    now = event.at ?? now + 1;
    [c, effects] = step(c, event, { now, random });
  }
  return [c, effects];
}

const attached = (offset: number, more: Partial<Attached> = {}): Event => ({
  type: 'frame',
  message: { type: 'attached', epoch: 'e1', offset, head: offset, cols: 80, rows: 24, mode: 'resume', keyframe_bytes: 0, ...more },
});
const prepared: Event = { type: 'prepared', url: 'wss://relay.test/ws?a=b', ticket: 't' };
const live: Event[] = [{ type: 'start' }, prepared, { type: 'opened' }, attached(100)];
const names = (effects: Effect[]) => effects.map((e) => e.type).join(' ');

test('the way to the first byte', () => {
  let [c, effects] = run(initial(), [{ type: 'start' }]);
  assert.equal(names(effects), 'no-timer prepare');
  [c, effects] = run(c, [prepared]);
  assert.deepEqual(effects, [{ type: 'timer', ms: openMs }, { type: 'open', url: 'wss://relay.test/ws?a=b', ticket: 't' }]);
  [c, effects] = run(c, [{ type: 'opened' }, attached(100, { head: 150 })]);
  assert.deepEqual(effects, [{ type: 'no-timer' }, 
    { type: 'unseen', part: { epoch: 'e1', from: 0, to: 100 }, skipped: false }, { type: 'clear' },
    { type: 'resize', cols: 80, rows: 24 }, { type: 'head', offset: 150 }, { type: 'begin', offset: 100, continues: false },
  ]);
  [c, effects] = run(c, [{ type: 'bytes', length: 7 }]);
  assert.deepEqual(effects, [{ type: 'write', offset: 100 }]);
  assert.deepEqual(c.position, { epoch: 'e1', offset: 107 });
});

test('a reconnect names its position and goes on without a repaint', () => {
  const [c, effects] = run(initial(), [...live, { type: 'bytes', length: 23 }, { type: 'closed', code: 1006 }, { type: 'timer' }, prepared]);
  const open = effects.find((e) => e.type === 'open');
  assert.equal(new URL(open?.url ?? '').searchParams.get('since'), 'e1:123');
  assert.equal(new URL(open?.url ?? '').searchParams.get('a'), 'b');
  assert.ok(!names(run(c, [attached(123)])[1]).includes('clear'));
});

for (const [what, message] of Object.entries({
  'a gap': attached(500, { mode: 'gap' }),
  'another epoch': attached(123, { epoch: 'e2' }),
  'another offset': attached(120),
})) {
  test(`${what} clears the screen`, () => {
    const [c] = run(initial(), [...live, { type: 'bytes', length: 23 }, { type: 'closed', code: 1006 }, { type: 'timer' }, prepared]);
    assert.ok(names(run(c, [message])[1]).includes('clear'));
  });
}

test('a keyframe counts no bytes', () => {
  let [c, effects] = run(initial(), [...live, {
    type: 'frame',
    message: { type: 'resync', epoch: 'e1', offset: 900, head: 900, cols: 80, rows: 24, keyframe_bytes: 55 },
  }]);
  // It clears the screen by itself, so that nothing flickers.
  assert.deepEqual(effects, [
    { type: 'unseen', part: { epoch: 'e1', from: 100, to: 900 }, skipped: true },
    { type: 'resize', cols: 80, rows: 24 }, { type: 'head', offset: 900 }, { type: 'begin', offset: 900, continues: false },
  ]);
  [c, effects] = run(c, [{ type: 'bytes', length: 55 }]);
  assert.deepEqual(effects, [{ type: 'write', offset: null }]);
  assert.equal(c.position?.offset, 900);
  [c, effects] = run(c, [{ type: 'bytes', length: 5 }]);
  assert.deepEqual(effects, [{ type: 'write', offset: 900 }]);
  assert.equal(c.position?.offset, 905);
});

test('what came before is told apart from what was skipped', () => {
  const lost = run(initial(), [...live, { type: 'bytes', length: 23 }, { type: 'closed', code: 1006 }, { type: 'timer' }, prepared])[0];
  const part = (event: Event) => run(lost, [event])[1].filter((e) => e.type === 'unseen');
  assert.deepEqual(part(attached(123)), []);
  assert.deepEqual(part(attached(120)), []);
  assert.deepEqual(part(attached(500, { mode: 'gap' })), [{ type: 'unseen', part: { epoch: 'e1', from: 123, to: 500 }, skipped: true }]);
  assert.deepEqual(part(attached(7, { epoch: 'e2', mode: 'gap' })), [{ type: 'unseen', part: { epoch: 'e2', from: 0, to: 7 }, skipped: false }]);
});

test('attempts back off with jitter, up to a cap', () => {
  assert.equal(backoff(0, 0), leastMs);
  assert.equal(backoff(0, 0.9999), firstMs - 1);
  assert.equal(backoff(1, 0.5), leastMs + (firstMs * 2 - leastMs) / 2);
  assert.equal(backoff(quickAttempts - 1, 0.9999), quickMs - 1);
  assert.equal(backoff(1000, 0.9999), capMs - 1);
  let [c] = run(initial(), [{ type: 'start' }]);
  const waits: number[] = [];
  for (let i = 0; i < 7; i++) {
    let effects: Effect[];
    [c, effects] = run(c, [{ type: 'refused', status: 0 }]);
    for (const e of effects) if (e.type === 'timer') waits.push(e.ms);
    [c] = run(c, [{ type: 'timer' }]);
  }
  assert.deepEqual(waits, [200, 350, 550, 550, 550, 550, 550]);
});

test('a connection that lasted forgets earlier failures, one that did not keeps them', () => {
  const failed = run(initial(), [{ type: 'start' }, { type: 'refused', status: 0 }, { type: 'timer' }, prepared, attached(0)])[0];
  const closed = (after: number) => run(failed, [{ ...attached(0), at: 5 }, { type: 'closed', code: 1006, at: 5 + after }])[0].failures;
  assert.equal(closed(stableMs - 1), 2);
  assert.equal(closed(stableMs), 1);
});

for (const [code, why] of [[4004, 'ended'], [4403, 'forbidden'], [4404, 'missing']] as const) {
  test(`close code ${code} is final`, () => {
    const [c, effects] = run(initial(), [...live, { type: 'closed', code }]);
    assert.deepEqual(c.phase, { name: 'over', why });
    assert.equal(names(effects), 'no-timer');
    assert.deepEqual(run(c, [{ type: 'timer' }, { type: 'online' }])[0], c);
  });
}

for (const code of [1000, 1006, 1009, 1012, 1013, 4400, 4409, 4429, 4502]) {
  test(`close code ${code} is tried again`, () => {
    const [c, effects] = run(initial(), [...live, { type: 'closed', code }]);
    assert.equal(c.phase.name, 'lost');
    assert.equal(names(effects), 'timer');
  });
}

test('4401 asks for one new grant', () => {
  let [c, effects] = run(initial(), [...live, { type: 'closed', code: 4401 }]);
  assert.deepEqual(effects.at(-1), { type: 'prepare', freshGrant: true });
  [c, effects] = run(c, [prepared, { type: 'closed', code: 4401 }]);
  assert.deepEqual(c.phase, { name: 'over', why: 'unauthenticated' });
  [c, effects] = run(c, [{ type: 'retry' }]);
  assert.deepEqual(effects.at(-1), { type: 'prepare', freshGrant: true });
});

for (const [status, phase] of [[0, 'lost'], [401, 'preparing'], [403, 'over'], [404, 'over'], [410, 'over'], [429, 'lost'], [500, 'lost'], [502, 'lost']] as const) {
  test(`a refusal of the ticket with ${status} leads to ${phase}`, () => {
    assert.equal(run(initial(), [{ type: 'start' }, { type: 'refused', status }])[0].phase.name, phase);
  });
}

test('the end of the program is told, and final', () => {
  const exit = { type: 'pty_closed', exit_code: 2, offset: 100 } as const;
  let [c] = run(initial(), [...live, { type: 'frame', message: exit }]);
  assert.ok(hasEnded(c));
  [c] = run(c, [{ type: 'closed', code: 1006 }]); // even when 4004 got lost
  assert.deepEqual(c.phase, { name: 'over', why: 'ended' });
  assert.equal(run(c, [{ type: 'retry' }])[0], c);
});

test('waiting holds the open timer off and ends with the next sign of life', () => {
  const waiting: Event = { type: 'frame', message: { type: 'waiting', reason: 'sandbox_offline' } };
  let [c] = run(initial(), [{ type: 'start' }, prepared, waiting, { type: 'timer' }]);
  assert.equal(c.phase.name, 'opening');
  [c] = run(c, [attached(0)]);
  assert.equal(c.waiting, null);
  [c] = run(c, [waiting]);
  assert.equal(c.waiting, 'sandbox_offline');
  assert.equal(run(c, [{ type: 'bytes', length: 1 }])[0].waiting, null);
  assert.equal(run(initial(), [{ type: 'start' }, prepared, { type: 'timer' }])[0].phase.name, 'lost');
});

test('retry and a changed network connect at once, even over a live socket', () => {
  for (const type of ['retry', 'online'] as const) {
    const lost = run(initial(), [...live, { type: 'closed', code: 1006 }])[0];
    assert.equal(names(run(lost, [{ type }])[1]), 'no-timer prepare');
    assert.equal(names(run(initial(), [...live, { type }])[1]), 'hang-up no-timer prepare');
  }
});

test('a socket that could not be used leads to another relay, one that was lost back to its own', () => {
  const never = run(initial(), [{ type: 'start' }, prepared, { type: 'closed', code: 1006 }])[1];
  assert.deepEqual(never.find((e) => e.type === 'elsewhere'), { type: 'elsewhere', url: 'wss://relay.test/ws?a=b' });
  assert.ok(!names(run(initial(), [...live, { type: 'closed', code: 1006 }])[1]).includes('elsewhere'));
  const moved = run(initial(), [...live, { type: 'frame', message: { type: 'moved', origin: 'https://b.test' } }])[1];
  assert.deepEqual(moved, [{ type: 'moved', origin: 'https://b.test' }]);
});

test('an outage has a beginning and an end', () => {
  let [c] = run(initial(), [...live, { type: 'closed', code: 1006, at: 50 }, { type: 'timer' }, { type: 'refused', status: 0, at: 70 }]);
  assert.equal(c.lostAt, 50);
  [c] = run(c, [{ type: 'retry' }, prepared, attached(100)]);
  assert.equal(c.lostAt, null);
  assert.equal(run(initial(), [...live, { type: 'online', at: 9 }])[0].lostAt, 9);
});

test('stop ends everything', () => {
  const [c, effects] = run(initial(), [...live, { type: 'stop' }]);
  assert.equal(names(effects), 'no-timer hang-up');
  assert.deepEqual(run(c, [{ type: 'timer' }, { type: 'closed', code: 1006 }, { type: 'online' }])[0], c);
});

test('a relay that stands still is left at once, for another', () => {
  const [c, effects] = run(initial(), [...live, { type: 'bytes', length: 23 }, { type: 'silent', at: 5_000 }]);
  assert.equal(names(effects), 'hang-up silent no-timer prepare');
  assert.deepEqual(effects[1], { type: 'silent', url: 'wss://relay.test/ws?a=b' });
  assert.equal(c.lostAt, 5_000);
  const [, next] = run(c, [prepared]);
  assert.ok(next.some((e) => e.type === 'open' && e.url.includes('since=e1%3A123')));
});
