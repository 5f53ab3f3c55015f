// Bringing files into the workspace: what there is to do, in which order, and
// what to do when a connection, a relay or the sandbox goes away on the way.

import { ApiError, backoff } from '@fairlead/core';
import type { Condition, FilesAPI, Progress } from './api.ts';
import { join, parentOf, type Entry } from './tree.ts';

// Larger files go by the resumable route.
export const largeBytes = 8 << 20;
export const chunkBytes = 4 << 20;
// How often a file is begun anew, or sent again for a reason that passes but is
// no outage.
const mostAttempts = 5;
const atOnce = 2; // files on their way

// A Source is a file on the person's side.
export interface Source {
  path: string; // below the folder that it goes to, without a leading slash
  file: Pick<File, 'size' | 'slice'>;
}

// A Batch is what was dropped, or chosen, in one go.
export interface Batch {
  folders: string[]; // paths as those of the sources, each before what is in it
  files: Source[];
}

export type Remote = Pick<FilesAPI, 'list' | 'there' | 'mkdir' | 'put' | 'same' | 'createUpload' | 'uploadOffset' | 'patchUpload' | 'dropUpload'>;

export interface UploadHooks {
  // replace asks whether files that are there may be replaced.
  replace(paths: string[]): Promise<boolean>;
  progress(done: number, total: number, name: string): void;
  waiting(waiting: boolean): void; // for a connection
  wait(failures: number, signal: AbortSignal): Promise<void>;
}

export interface Outcome {
  uploaded: number; // files
  skipped: number; // since they may not be replaced
  failed: { path: string; error: unknown }[];
}

// pause waits as long as backoff says.
export const pause = (failures: number, signal: AbortSignal): Promise<void> => new Promise((resolve) => {
  const timer = setTimeout(resolve, backoff(failures, Math.random()));
  signal.addEventListener('abort', () => {
    clearTimeout(timer);
    resolve();
  }, { once: true });
});

// outage reports whether a failure is one of the way there: worth waiting for.
export const outage = (error: unknown): boolean => error instanceof ApiError && [0, 502, 503, 504].includes(error.status);

const replaceable = (entry: Entry | undefined): boolean => entry !== undefined && entry.type !== 'dir';

// An Upload brings batch into the folder target. run rejects only when signal aborts
// it, or when there is nothing to begin with.
export class Upload {
  #done = 0; // bytes of files that are over
  readonly #moving = new Map<Source, number>(); // bytes of those on their way
  readonly #outcome: Outcome = { uploaded: 0, skipped: 0, failed: [] };
  #waiting = 0;

  constructor(
    private readonly remote: Remote,
    private readonly target: string,
    private readonly batch: Batch,
    private readonly hooks: UploadHooks,
    private readonly signal: AbortSignal,
  ) {}

  async run(): Promise<Outcome> {
    const there = await this.#there();
    const existing = this.batch.files.filter(({ path }) => replaceable(there.get(path)));
    const replace = existing.length > 0 && (await this.hooks.replace(existing.map(({ path }) => path)));
    this.signal.throwIfAborted();
    for (const folder of this.batch.folders) {
      if (there.get(folder)?.type !== 'dir') await this.#lasting(() => this.remote.mkdir(join(this.target, folder)));
    }
    const left = this.batch.files.filter((source) => {
      if (replace || !replaceable(there.get(source.path))) return true;
      this.#outcome.skipped++;
      this.#done += source.file.size;
      return false;
    });
    const worker = async () => {
      for (let source = left.shift(); source !== undefined; source = left.shift()) await this.#one(source, there.get(source.path));
    };
    await Promise.all(Array.from({ length: atOnce }, worker));
    return this.#outcome;
  }

  // there returns what is at the batch's places already.
  async #there(): Promise<Map<string, Entry>> {
    const found = new Map<string, Entry>();
    const look = async (folder: string) => {
      const entries = await this.#lasting(() => this.remote.list(folder === '' ? this.target : join(this.target, folder)));
      for (const entry of entries) found.set(folder === '' ? entry.name : join(folder, entry.name), entry);
    };
    await look('');
    for (const folder of this.batch.folders) {
      if (found.get(folder)?.type === 'dir') await look(folder);
    }
    return found;
  }

  async #one(source: Source, there: Entry | undefined): Promise<void> {
    const path = join(this.target, source.path);
    const condition: Condition = there === undefined ? { kind: 'new' } : { kind: 'replace', etag: there.etag };
    try {
      this.#moved(source, 0);
      if (source.file.size > largeBytes) await this.#large(source, path, condition);
      else await this.#small(source, path, condition);
      this.#outcome.uploaded++;
    } catch (error) {
      this.signal.throwIfAborted();
      this.#outcome.failed.push({ path: source.path, error });
    } finally {
      this.#moving.delete(source);
      this.#done += source.file.size;
      this.#tell(source);
    }
  }

  // small writes a file in one request. When the answer to one was lost, the
  // next may find the condition broken by the file itself.
  async #small(source: Source, path: string, condition: Condition): Promise<void> {
    const content = await source.file.slice(0, source.file.size).arrayBuffer();
    let lost = false;
    await this.#lasting(async () => {
      try {
        await this.remote.put(path, content, condition, this.#progress(source, 0), this.signal);
      } catch (error) {
        if (lost && error instanceof ApiError && [409, 412].includes(error.status) && (await this.remote.same(path, content, this.signal))) return;
        lost ||= outage(error);
        throw error;
      }
    });
  }

  // large goes on where the sandbox says that it is.
  async #large(source: Source, path: string, condition: Condition): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      if (condition.kind === 'replace' && (await this.#lasting(() => this.remote.there(path)))?.etag !== condition.etag) {
        throw new ApiError(412, 'The file has changed.');
      }
      const id = await this.#lasting(() => this.remote.createUpload(path, source.file.size, condition.kind !== 'new', this.signal));
      try {
        await this.#chunks(source, id);
        return;
      } catch (error) {
        if (this.signal.aborted || !(error instanceof ApiError) || error.status !== 404 || attempt === mostAttempts) {
          this.remote.dropUpload(id).catch(() => {}); // it expires
          throw error;
        }
      }
    }
  }

  async #chunks(source: Source, id: string): Promise<void> {
    const { size } = source.file;
    let offset = 0;
    let asked = 0; // offset that was refused
    for (;;) {
      this.signal.throwIfAborted();
      const chunk = await source.file.slice(offset, Math.min(offset + chunkBytes, size)).arrayBuffer();
      try {
        offset = await this.remote.patchUpload(id, offset, chunk, this.#progress(source, offset), this.signal);
        if (offset >= size) return;
        asked = 0;
      } catch (error) {
        this.signal.throwIfAborted();
        const conflict = error instanceof ApiError && error.status === 409;
        if (!outage(error) && !(conflict && ++asked <= mostAttempts)) throw error;
        if (conflict) await this.hooks.wait(asked, this.signal); // a request that was cut off is still there
        offset = await this.#lasting(() => this.remote.uploadOffset(id, this.signal));
      }
      this.#moved(source, offset);
    }
  }

  // lasting repeats what fails for an outage, until it is over.
  async #lasting<T>(step: () => Promise<T>): Promise<T> {
    let counted = false;
    try {
      for (let failures = 1, busy = 0; ; failures++) {
        this.signal.throwIfAborted();
        try {
          return await step();
        } catch (error) {
          this.signal.throwIfAborted();
          const passing = error instanceof ApiError && error.status === 429 && ++busy < mostAttempts;
          if (!outage(error) && !passing) throw error;
          if (!counted) this.#wait(1);
          counted = true;
          await this.hooks.wait(failures, this.signal);
        }
      }
    } finally {
      if (counted) this.#wait(-1);
    }
  }

  #wait(change: number): void {
    this.#waiting += change;
    this.hooks.waiting(this.#waiting > 0);
  }

  #progress(source: Source, offset: number): Progress {
    return (bytes) => this.#moved(source, offset + bytes);
  }

  #moved(source: Source, bytes: number): void {
    this.#moving.set(source, Math.min(bytes, source.file.size));
    this.#tell(source);
  }

  #tell(source: Source): void {
    const moving = [...this.#moving.values()].reduce((sum, bytes) => sum + bytes, 0);
    const total = this.batch.files.reduce((sum, { file }) => sum + file.size, 0);
    this.hooks.progress(this.#done + moving, total, source.path);
  }
}

// foldersOf adds to files the folders that they are in, those above first.
export function foldersOf(files: Source[], folders: string[] = []): Batch {
  const all = new Set<string>();
  const add = (folder: string) => {
    if (folder === '' || all.has(folder)) return;
    add(parentOf(`/${folder}`).slice(1));
    all.add(folder);
  };
  folders.forEach(add);
  for (const { path } of files) add(parentOf(`/${path}`).slice(1));
  return { folders: [...all], files };
}
