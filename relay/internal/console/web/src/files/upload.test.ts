import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from '@fairlead/core';
import type { Condition } from './api.ts';
import { nameOf, parentOf, type Entry } from './tree.ts';
import { chunkBytes, foldersOf, largeBytes, Upload, type Remote, type Source, type UploadHooks } from './upload.ts';

// A FakeRemote is a workspace whose connection breaks as script says: each
// request takes one word of it. "before": it doesn't arrive; "after": its answer
// doesn't; a number is a status.
class FakeRemote implements Remote {
  readonly files = new Map<string, string>(); // content by path; folders end in "/"
  readonly uploads = new Map<string, { path: string; size: number; content: string; done: boolean }>();
  readonly calls: string[] = [];
  script: (string | number)[] = [];
  version = 0;
  readonly tags = new Map<string, string>();

  set(path: string, content: string): void {
    this.files.set(path, content);
    this.tags.set(path, `"${++this.version}"`);
  }

  async #step<T>(name: string, run: () => T): Promise<T> {
    this.calls.push(name);
    const word = this.script.shift() ?? 'ok';
    if (typeof word === 'number') throw new ApiError(word, 'as it was told');
    if (word === 'before') throw new ApiError(0, 'lost');
    const value = run();
    if (word === 'after') throw new ApiError(503, 'lost');
    return value;
  }

  #entry(path: string): Entry {
    const dir = this.files.has(`${path}/`);
    return { name: nameOf(path), path, type: dir ? 'dir' : 'file', size: 0, modified: 0, target: '', etag: dir ? '' : (this.tags.get(path) ?? '') };
  }

  list(folder: string): Promise<Entry[]> {
    return this.#step(`list ${folder}`, () => [...this.files.keys()].map((p) => p.replace(/\/$/, '')).filter((p) => parentOf(p) === folder && p !== '').map((p) => this.#entry(p)));
  }

  there(path: string): Promise<Entry | undefined> {
    return this.#step(`there ${path}`, () => (this.files.has(path) ? this.#entry(path) : undefined));
  }

  mkdir(path: string): Promise<void> {
    return this.#step(`mkdir ${path}`, () => void this.files.set(`${path}/`, ''));
  }

  put(path: string, body: ArrayBuffer, condition: Condition): Promise<void> {
    return this.#step(`put ${path}`, () => {
      if (condition.kind === 'new' ? this.files.has(path) : this.tags.get(path) !== condition.etag) throw new ApiError(412, 'changed');
      this.set(path, new TextDecoder().decode(body));
    });
  }

  same(path: string, content: ArrayBuffer): Promise<boolean> {
    return this.#step(`same ${path}`, () => this.files.get(path) === new TextDecoder().decode(content));
  }

  createUpload(path: string, size: number): Promise<string> {
    return this.#step(`create ${path}`, () => {
      const id = `u${this.uploads.size}`;
      this.uploads.set(id, { path, size, content: '', done: false });
      return id;
    });
  }

  uploadOffset(id: string): Promise<number> {
    return this.#step(`offset ${id}`, () => this.#upload(id).content.length);
  }

  patchUpload(id: string, offset: number, body: ArrayBuffer): Promise<number> {
    return this.#step(`patch ${id} ${offset}`, () => {
      const upload = this.#upload(id);
      if (upload.content.length !== offset) throw new ApiError(409, 'offset');
      upload.content += new TextDecoder().decode(body);
      if (upload.content.length === upload.size && !upload.done) {
        upload.done = true;
        this.set(upload.path, upload.content);
      }
      return upload.content.length;
    });
  }

  dropUpload(id: string): Promise<void> {
    return this.#step(`drop ${id}`, () => void this.uploads.delete(id));
  }

  #upload(id: string) {
    const upload = this.uploads.get(id);
    if (upload === undefined) throw new ApiError(404, 'no such upload');
    return upload;
  }
}

const source = (path: string, content: string): Source => ({ path, file: new Blob([content]) as unknown as Source['file'] });
const large = (seed: string) => seed.repeat(Math.ceil((largeBytes + 3 * chunkBytes + 5) / seed.length));

function upload(remote: FakeRemote, files: Source[], more: Partial<UploadHooks> = {}, signal = new AbortController().signal, folders: string[] = []) {
  return new Upload(remote, '/to', foldersOf(files, folders), {
    replace: async () => true, progress: () => {}, waiting: () => {}, wait: async () => {}, ...more,
  }, signal).run();
}

function workspace(): FakeRemote {
  const remote = new FakeRemote();
  remote.files.set('/to/', '');
  return remote;
}

test('a folder goes up with its folders before its files', async () => {
  const remote = workspace();
  const progress: number[] = [];
  const outcome = await upload(remote, [source('a/b/c.txt', 'hello'), source('a/d', '')], { progress: (done, total) => progress.push(done / total) }, undefined, ['a', 'a/empty']);
  assert.deepEqual(outcome, { uploaded: 2, skipped: 0, failed: [] });
  assert.equal(remote.files.get('/to/a/b/c.txt'), 'hello');
  assert.equal(remote.files.get('/to/a/empty/'), '');
  assert.deepEqual(remote.calls.filter((c) => c.startsWith('mkdir')), ['mkdir /to/a', 'mkdir /to/a/empty', 'mkdir /to/a/b']);
  assert.equal(progress.at(-1), 1);
});

test('what is there is replaced only if one may, and only if it is what it was', async () => {
  const remote = workspace();
  remote.set('/to/a', 'old');
  const asked: string[][] = [];
  const no = await upload(remote, [source('a', 'new'), source('b', 'b')], { replace: async (paths) => (asked.push(paths), false) });
  assert.deepEqual(no, { uploaded: 1, skipped: 1, failed: [] });
  assert.deepEqual(asked, [['a']]);
  assert.equal(remote.files.get('/to/a'), 'old');
  await upload(remote, [source('a', 'new')]);
  assert.equal(remote.files.get('/to/a'), 'new');
  const late = await upload(remote, [source('a', 'newer')], { replace: async () => (remote.set('/to/a', 'theirs'), true) });
  assert.equal((late.failed[0]?.error as ApiError).status, 412);
  assert.equal(remote.files.get('/to/a'), 'theirs');
  const big = await upload(remote, [source('a', large('x'))], { replace: async () => (remote.set('/to/a', 'again'), true) });
  assert.equal((big.failed[0]?.error as ApiError).status, 412);
});

test('an answer that was lost is no conflict', async () => {
  const remote = workspace();
  remote.script = ['ok', 'after'];
  assert.equal((await upload(remote, [source('a', 'mine')])).uploaded, 1);
  assert.deepEqual(remote.calls, ['list /to', 'put /to/a', 'put /to/a', 'same /to/a']);
  // But what somebody else wrote is one.
  const other = workspace();
  other.script = ['ok', 'before'];
  const outcome = await upload(other, [source('a', 'mine')], { wait: async () => other.set('/to/a', 'theirs') });
  assert.equal((outcome.failed[0]?.error as ApiError).status, 412);
  assert.equal(other.files.get('/to/a'), 'theirs');
});

test('a large file goes on where it was', async () => {
  const remote = workspace();
  const content = large('0123456789');
  remote.script = ['ok', 'ok', 'ok', 'after', 'before', 'ok', 'before'];
  const waits: boolean[] = [];
  const outcome = await upload(remote, [source('big', content)], { waiting: (on) => waits.push(on) });
  assert.deepEqual(outcome, { uploaded: 1, skipped: 0, failed: [] });
  assert.equal(remote.files.get('/to/big'), content);
  assert.equal(waits.at(-1), false);
  assert.equal(remote.uploads.size, 1);
});

test('an upload that the sandbox has forgotten begins anew, one that it refuses ends', async () => {
  const remote = workspace();
  const content = large('ab');
  let forgot = false;
  const outcome = await upload(remote, [source('big', content)], {
    progress: () => {
      if (!forgot && [...remote.uploads.values()].some((u) => u.content.length > 0)) {
        forgot = true;
        remote.uploads.clear();
      }
    },
  });
  assert.equal(outcome.uploaded, 1);
  assert.equal(remote.files.get('/to/big'), content);
  const full = workspace();
  full.script = ['ok', 'ok', 'ok', 507];
  const failed = await upload(full, [source('big', content), source('small', 's')]);
  assert.equal(failed.failed.length + failed.uploaded, 2);
  assert.equal((failed.failed[0]?.error as ApiError).status, 507);
});

test('cancelled is cancelled', async () => {
  const remote = workspace();
  const stop = new AbortController();
  remote.script = ['ok', 'ok', 'ok'];
  const run = upload(remote, [source('big', large('z')), source('next', 'n')], { progress: (done) => done > chunkBytes && stop.abort(new Error('cancelled')) }, stop.signal);
  await assert.rejects(run, /cancelled/);
  await new Promise((resolve) => setTimeout(resolve));
  assert.ok(!remote.files.has('/to/big'));
  assert.ok(remote.calls.some((c) => c.startsWith('drop')));
});

test('whatever breaks, each file arrives whole', async () => {
  let seed = Number(process.env['SEED'] ?? Date.now() % 1e9);
  console.log('SEED', seed);
  const random = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
  for (let round = 0; round < 20; round++) {
    const remote = workspace();
    remote.script = Array.from({ length: 40 }, () => ['ok', 'ok', 'before', 'after', 429][random(5)] ?? 'ok');
    const content = `${round}-`.repeat((largeBytes + random(2 * chunkBytes)) / 2);
    // Too many requests are a reason to give up, at last.
    const outcome = await upload(remote, [source('d/big', content), source('small', `s${round}`)]).catch((error: unknown) => ({ failed: [{ error }] }));
    for (const { error } of outcome.failed) assert.equal((error as ApiError).status, 429, `round ${round}`);
    if (outcome.failed.length === 0) {
      assert.equal(remote.files.get('/to/d/big'), content, `round ${round}`);
      assert.equal(remote.files.get('/to/small'), `s${round}`, `round ${round}`);
    }
  }
});
