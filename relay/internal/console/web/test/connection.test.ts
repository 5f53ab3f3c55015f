import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backoff, baseMs, capMs } from '../src/backoff.ts';
import { hasEnded, initial, openMs, stableMs, step, type Connection, type Effect, type Event } from '../src/connection.ts';
import type { Attached } from '../src/protocol.ts';

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
  assert.deepEqual(effects, [{ type: 'no-timer' }, { type: 'clear' }, { type: 'resize', cols: 80, rows: 24 }, { type: 'head', offset: 150 }]);
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
  assert.ok(names(effects).startsWith('clear'));
  [c, effects] = run(c, [{ type: 'bytes', length: 55 }]);
  assert.deepEqual(effects, [{ type: 'write', offset: null }]);
  assert.equal(c.position?.offset, 900);
  [c, effects] = run(c, [{ type: 'bytes', length: 5 }]);
  assert.deepEqual(effects, [{ type: 'write', offset: 900 }]);
  assert.equal(c.position?.offset, 905);
});

test('attempts back off with full jitter, up to a cap', () => {
  assert.equal(backoff(0, 0), 0);
  assert.equal(backoff(0, 0.999), Math.floor(baseMs * 0.999));
  assert.equal(backoff(3, 0.5), baseMs * 4);
  assert.equal(backoff(1000, 0.5), capMs / 2);
  let c = run(initial(), [{ type: 'start' }])[0];
  const waits: number[] = [];
  for (let i = 0; i < 7; i++) {
    let effects: Effect[];
    [c, effects] = run(c, [{ type: 'refused', status: i % 2 === 0 ? 0 : 503 }], 0.5);
    for (const e of effects) if (e.type === 'timer') waits.push(e.ms);
    [c] = run(c, [{ type: 'timer' }]);
  }
  assert.deepEqual(waits, [250, 500, 1000, 2000, 4000, 5000, 5000]);
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

test('what can not be shown in time is fetched later', () => {
  let [c, effects] = run(initial(), [...live, { type: 'bytes', length: 9 }, { type: 'overrun' }]);
  assert.equal(names(effects), 'hang-up no-timer');
  [c, effects] = run(c, [{ type: 'drained' }, prepared]);
  assert.ok(effects.some((e) => e.type === 'open' && e.url.includes('e1%3A109')));
  assert.equal(c.failures, 0);
});

test('stop ends everything', () => {
  const [c, effects] = run(initial(), [...live, { type: 'stop' }]);
  assert.equal(names(effects), 'no-timer hang-up');
  assert.deepEqual(run(c, [{ type: 'timer' }, { type: 'closed', code: 1006 }, { type: 'online' }])[0], c);
});
