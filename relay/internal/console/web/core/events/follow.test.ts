import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { ApiError, Unwanted } from '../session/http.ts';
import { Follow } from './follow.ts';

const turns = async () => {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
};

// run answers each attempt to open by the next of answers, and returns what was
// asked and told until none is left.
async function run(answers: (string | number)[]): Promise<{ asked: string[]; told: string[] }> {
  mock.timers.enable({ apis: ['setTimeout'] });
  const asked: string[] = [];
  const told: string[] = [];
  const follow = new Follow({
    open: (since, signal, fresh) => {
      if (signal.aborted) told.push('aborted');
      asked.push(`${since}${fresh ? ' fresh' : ''}`);
      const answer = answers.shift();
      if (answer === undefined) return new Promise(() => {});
      return typeof answer === 'number' ? Promise.reject(new ApiError(answer, 'no')) : Promise.resolve(new Response(answer));
    },
    event: ({ name, data }) => told.push(`${name} ${data}`),
    connected: (connected) => told.push(connected ? 'connected' : 'lost'),
    over: (error) => told.push(`over ${error.status}`),
  });
  try {
    follow.start();
    for (let i = 0; i < 40 && !(answers.length === 0 && i > 20); i++) {
      await turns();
      mock.timers.tick(400);
    }
    await turns();
  } finally {
    follow.stop();
    mock.timers.reset();
  }
  return { asked, told };
}

test('a stream goes on behind the last event that came', async () => {
  const { asked, told } = await run(['event: a\nid: 1:5\ndata: x\n\nid: 1:6\ndata: cu', 0, 'data: y\n\n']);
  assert.deepEqual(asked.slice(0, 4), ['', '1:5', '1:5', '1:5']);
  assert.deepEqual(told.slice(0, 2), ['connected', 'a x']);
  assert.ok(told.includes('message y'));
  assert.equal(told.at(-1), 'lost', 'nothing came any more');
});

test('a grant that ended is renewed once; what is forbidden is over', async () => {
  assert.deepEqual((await run([401, 'data: x\n\n', 403])).asked, ['', ' fresh', '']);
  const refused = await run([401, 401]);
  assert.deepEqual(refused.asked, ['', ' fresh']);
  assert.equal(refused.told.at(-1), 'over 401');
  assert.equal((await run([403])).told.at(-1), 'over 403');
});

test('an outage is told late, and once', async () => {
  const { told } = await run([503, 503, 503, 503, 503, 503, 503, 'data: x\n\n']);
  assert.deepEqual(told.filter((t) => t === 'lost').length >= 1, true);
  assert.equal(told[0], 'lost');
  assert.equal(told[1], 'connected');
});

test('what is stopped is no relay’s fault', async () => {
  let reason: unknown;
  const follow = new Follow({
    open: (_, signal) => new Promise((_, reject) => signal.addEventListener('abort', () => {
      reason = signal.reason;
      reject(signal.reason as Error);
    })),
    event: () => {}, connected: () => {}, over: () => {},
  });
  follow.start();
  await turns();
  follow.stop();
  assert.ok(reason instanceof Unwanted);
});
