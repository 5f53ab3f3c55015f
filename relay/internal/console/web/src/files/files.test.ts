import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from '@fairlead/core';
import type { FilesAPI } from './api.ts';
import { saveFile, saveName } from './download.ts';
import { Lister, restMs } from './lister.ts';
import { age, counted, problem, some } from './words.ts';

test('what went wrong is said in words', () => {
  assert.match(problem(new ApiError(507, 'no space is left')), /disk is full/);
  assert.match(problem(new ApiError(412, 'x')), /Somebody has changed it/);
  assert.equal(problem(new ApiError(413, 'the file is over 52428800 bytes')), 'Too large: the file is over 52428800 bytes.');
  assert.equal(problem(new ApiError(409, 'there is something of that name already')), 'Not possible: there is something of that name already.');
  assert.equal(problem(new ApiError(400, 'a \u202e trick')), 'a ⟨U+202E⟩ trick.');
  assert.equal(problem(new ApiError(0, 'x')), 'There is no connection.');
  assert.match(problem(new DOMException('x', 'NotReadableError')), /on this device/);
  assert.equal(problem(new Error('as it is')), 'as it is');
});

test('ages and counts', () => {
  const now = Date.UTC(2026, 0, 1);
  assert.deepEqual([0, 59_000, 60_000, 7_200_000, 86_400_000 * 40].map((ms) => age(now - ms, now)), ['now', 'now', '1 min', '2 h', '1 mo']);
  assert.equal(age(0, now), '');
  assert.equal(age(now + 120_000, now), 'future');
  assert.deepEqual([counted(1, 'file'), counted(2000, 'file')], ['1 file', '2,000 files']);
  assert.equal(some(['a', 'b\n', 'c'], 2), 'a\nb⟨U+000A⟩\nand 1 other');
});

test('a name for the person’s own disk', () => {
  assert.equal(saveName('/a/b\u202e.txt'), 'b_.txt');
  assert.equal(saveName('/', '.tar.gz'), 'workspace.tar.gz');
  assert.equal(saveName('/a\\b:c'), 'a_b_c');
});

test('a folder that changes all the time is listed now and then', async () => {
  let now = 0;
  let timers: { at: number; run: () => void }[] = [];
  const lists: number[] = [];
  const lister = new Lister(async () => {
    lists.push(now);
    now += 100; // as long as it takes
  }, { now: () => now, setTimeout: (run, ms) => timers.push({ at: now + ms, run }) });
  const until = async (time: number) => {
    while (now < time) {
      lister.want('/');
      await new Promise((resolve) => setImmediate(resolve));
      now += 50;
      const due = timers.filter(({ at }) => at <= now);
      timers = timers.filter(({ at }) => at > now);
      for (const { run } of due) run();
    }
  };
  await until(10_000);
  const every = 100 + 4 * 100 + restMs;
  assert.ok(lists.length >= 10_000 / (every + 150) && lists.length <= 10_000 / every + 1, `${lists.length} lists`);
});

test('a folder that is being read is not read again because it is drawn', async () => {
  let lists = 0;
  let finish = () => {};
  const timers: (() => void)[] = [];
  const lister = new Lister(() => (lists++, new Promise<void>((resolve) => (finish = resolve))), { now: () => 0, setTimeout: (run) => timers.push(run) });
  const rest = async () => {
    finish();
    await new Promise((resolve) => setImmediate(resolve));
    timers.splice(0).forEach((run) => run());
  };
  for (let i = 0; i < 3; i++) lister.need('/');
  await rest();
  assert.equal(lists, 1);
  lister.need('/');
  lister.want('/'); // it has changed meanwhile
  await rest();
  assert.equal(lists, 3);
});

test('a download goes on where it broke, and not behind another content', async () => {
  const content = 'the whole of it';
  let tag = '"1"';
  const api = {
    read: async (_: string, offset: number, etag: string) => {
      if (etag !== '' && etag !== tag) throw new ApiError(412, 'changed');
      const parts = [content.slice(offset, offset + 5)];
      const body = new ReadableStream<Uint8Array>({
        pull: (stream) => {
          const part = parts.shift();
          if (part === undefined && offset + 5 < content.length) stream.error(new Error('lost'));
          else if (part === undefined) stream.close();
          else stream.enqueue(new TextEncoder().encode(part));
        },
      });
      return new Response(body, { status: offset > 0 ? 206 : 200, headers: { ETag: tag } });
    },
  } as unknown as FilesAPI;
  const entry = { name: 'f', path: '/f', type: 'file', size: content.length, modified: 0, target: '', etag: tag } as const;
  const save = async (progress: (bytes: number) => void) => {
    let got = '';
    const sink = { write: async (chunk: Uint8Array) => void (got += new TextDecoder().decode(chunk)), close: async () => {}, abort: async () => {} };
    await saveFile(api, entry, sink, { progress, waiting: () => {} }, new AbortController().signal);
    return got;
  };
  assert.equal(await save(() => {}), content);
  await assert.rejects(save(() => (tag = '"2"')), (error) => error instanceof ApiError && error.status === 412);
});
