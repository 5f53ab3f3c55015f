import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Grants } from './grants.ts';
import { ApiError } from './http.ts';

// A clock that stands still until it is moved.
class FakeClock {
  time = 0;
  #next = 1;
  #timers = new Map<number, { at: number; run: () => void }>();

  now(): number {
    return this.time;
  }

  setTimeout(run: () => void, ms: number): unknown {
    this.#timers.set(this.#next, { at: this.time + ms, run });
    return this.#next++;
  }

  clearTimeout(timer: unknown): void {
    this.#timers.delete(timer as number);
  }

  async advance(ms: number): Promise<void> {
    const end = this.time + ms;
    for (;;) {
      const due = [...this.#timers].filter(([, t]) => t.at <= end).sort((a, b) => a[1].at - b[1].at)[0];
      if (due === undefined) break;
      this.#timers.delete(due[0]);
      this.time = due[1].at;
      due[1].run();
      await new Promise(setImmediate);
    }
    this.time = end;
  }
}

function make(lifetimeMs = 600_000) {
  const clock = new FakeClock();
  const renewed: string[] = [];
  const server = { asked: 0, fails: false };
  const grants = new Grants(
    async () => {
      server.asked++;
      if (server.fails) throw new ApiError(503, 'away');
      return { grant: `g${server.asked}`, lifetimeMs };
    },
    (grant) => renewed.push(grant),
    clock,
  );
  return { clock, renewed, server, grants };
}

test('callers share a grant, and the request for it', async () => {
  const { grants, server } = make();
  assert.deepEqual(await Promise.all([grants.current(), grants.current()]), ['g1', 'g1']);
  assert.equal(await grants.current(), 'g1');
  assert.equal(server.asked, 1);
  assert.equal(await grants.current(true), 'g2');
});

test('a grant is renewed before it expires, for ever', async () => {
  const { clock, grants, renewed } = make();
  await grants.current();
  await clock.advance(30 * 60_000);
  assert.deepEqual(renewed, ['g2', 'g3', 'g4']);
});

test('a renewal that fails is tried again until the grant is gone', async () => {
  const { clock, grants, renewed, server } = make();
  await grants.current();
  server.fails = true;
  await clock.advance(9 * 60_000);
  assert.deepEqual(renewed, []);
  server.fails = false;
  await clock.advance(10_000);
  assert.equal(renewed.length, 1);
  server.fails = true;
  await clock.advance(20 * 60_000);
  const { asked } = server;
  await clock.advance(20 * 60_000);
  assert.equal(server.asked, asked); // nobody asks for what nobody uses
  await assert.rejects(grants.current(), ApiError);
});
