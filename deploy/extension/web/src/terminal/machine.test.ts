import assert from 'node:assert/strict';
import { test } from 'node:test';
import { idle, keptMs, step, type Effect, type Happening, type Machine } from './machine.ts';

// run lets things happen one after the other, a millisecond apart unless said
// otherwise, and returns how it stands and all that was asked for.
function run(machine: Machine, ...happenings: (Happening | number)[]): { name: string; note: string; machine: Machine; effects: string[] } {
  const effects: Effect[] = [];
  let now = 0;
  for (const happening of happenings) {
    now += typeof happening === 'number' ? happening : 1;
    if (typeof happening === 'number') continue;
    const [next, asked] = step(machine, happening, now);
    machine = next;
    effects.push(...asked);
  }
  const { state } = machine;
  return { name: state.name, note: 'note' in state ? state.note : '', machine, effects: effects.map((e) => ('ms' in e ? `${e.do} ${e.ms}` : 'session' in e ? `${e.do} ${e.session}` : 'token' in e ? `${e.do} ${e.token}` : e.do)) };
}

const start: Happening = { is: 'start' };
const minted: Happening = { is: 'minted', session: 's', token: 't' };
const available: Happening = { is: 'available', available: true };
const opened: Happening = { is: 'open' };
const due: Happening = { is: 'due' };
const closedBy = (code: number): Happening => ({ is: 'closed', code });
const message = (message: Record<string, unknown>): Happening => ({ is: 'message', message });
const refused = (again: boolean): Happening => ({ is: 'refused', reason: 'no', again });
const living = run(idle, start, minted, available, opened).machine;

test('nothing is asked for before the first key', () => {
  assert.deepEqual(run(idle, due, opened, closedBy(1006), message({ type: 'ping' }), available, minted).effects, []);
});

test('the first key: a terminal, whether there is a claude, the socket, the program', () => {
  const began = run(idle, start, minted, available, opened);
  assert.equal(began.name, 'live');
  assert.deepEqual(began.effects, ['mint', 'ask', 'open t', 'keep s', 'reset', 'begin']);
  assert.deepEqual(run(idle, start, start, start).effects, ['mint'], 'once, however many keys');
});

test('a start that fails is back where it was', () => {
  assert.deepEqual([run(idle, start, refused(true)).name, run(idle, start, refused(true)).note], ['idle', 'Cannot start: no']);
  assert.equal(run(idle, start, minted, available, closedBy(1006)).name, 'idle');
  assert.equal(run(idle, start, minted, { is: 'available', available: false }).name, 'absent');
  assert.equal(run(living, closedBy(4404)).name, 'absent');
  assert.deepEqual(run(idle, start, minted, { is: 'available', available: false }, start).effects.slice(-1), ['mint'], 'installed since');
});

test('an end is an end', () => {
  for (const code of [1000, 4001]) {
    const over = run(living, closedBy(code));
    assert.deepEqual([over.name, over.effects], ['ended', ['leave', 'forget']]);
    assert.deepEqual(run(over.machine, due, opened).effects, []);
    assert.deepEqual(run(over.machine, start).effects, ['mint']);
  }
});

test('a lost connection is taken up where it was, with growing pauses', () => {
  const back = run(living, closedBy(1006), due, refused(true), due, minted, closedBy(1006), due, minted, opened, message({ type: 'reattach-begin', sessionId: 's' }));
  assert.equal(back.name, 'live');
  assert.deepEqual(back.effects, ['leave', 'pause 0', 'reattach s', 'leave', 'pause 1000', 'reattach s', 'open t', 'leave', 'pause 2000', 'reattach s', 'open t', 'resize', 'reset']);
  const pauses = run(living, closedBy(1012), ...Array.from({ length: 12 }, () => [due, refused(true)]).flat()).effects.filter((e) => e.startsWith('pause'));
  assert.deepEqual(pauses.slice(0, 7), ['pause 0', 'pause 1000', 'pause 2000', 'pause 4000', 'pause 8000', 'pause 8000', 'pause 8000']);
});

test('what the sandbox keeps no longer is over', () => {
  assert.equal(run(living, closedBy(1006), due, refused(false)).name, 'ended');
  const late = run(living, closedBy(1006), keptMs + 5, due);
  assert.deepEqual([late.name, late.effects.slice(-2)], ['ended', ['leave', 'forget']]);
  assert.deepEqual(run(living, closedBy(1006), start).effects.slice(-3), ['leave', 'forget', 'mint'], 'or the person would rather begin anew');
});

test('a relay that names no session keeps nothing', () => {
  const bare = run(idle, start, { is: 'minted', session: '', token: '' }, available, opened);
  assert.deepEqual(bare.effects, ['mint', 'ask', 'open ', 'reset', 'begin']);
  assert.equal(run(bare.machine, closedBy(1006)).name, 'ended');
});

test('a page that was loaded anew goes on', () => {
  assert.deepEqual(run(idle, { is: 'found', session: 's' }, due, minted, opened).effects, ['leave', 'pause 0', 'reattach s', 'open t', 'resize']);
});

test('a ping is answered, and what isn’t known is let be', () => {
  const [, effects] = step(living, message({ type: 'ping', ts: 7 }), 0);
  assert.deepEqual(effects, [{ do: 'answer', message: { type: 'pong', ts: 7 } }]);
  assert.deepEqual(run(living, message({ type: 'later' }), message({}), due, minted, available, start).effects, []);
});

test('a network that is back ends the pause', () => {
  const back = run(living, closedBy(1006), due, refused(true), due, refused(true), { is: 'online' }, due, minted, opened);
  assert.equal(back.name, 'live');
  assert.deepEqual(back.effects.slice(-5), ['leave', 'pause 0', 'reattach s', 'open t', 'resize']);
  assert.deepEqual(run(living, { is: 'online' }).effects, []);
  assert.deepEqual(run(idle, { is: 'online' }).effects, []);
});
