// Saving files of the workspace. A grant is a header, so a link can't fetch
// them: what is large is written to the disk as it comes, where the browser lets
// a page do that, and everything else is held in memory first.

import { ApiError } from '@fairlead/core';
import { size as sizeText } from '../ui/format.ts';
import type { FilesAPI } from './api.ts';
import { nameOf, type Entry } from './tree.ts';
import { outage, pause } from './upload.ts';

// Up to this size a file goes where the browser's other downloads go.
const askFromBytes = 64 << 20;
// The most that is held in memory.
export const mostHeldBytes = 512 << 20;

interface Sink {
  write(chunk: Uint8Array<ArrayBuffer>): Promise<void>;
  close(): Promise<void>;
  abort(): Promise<void>;
}

type SavePicker = (options: { suggestedName: string }) => Promise<{ createWritable(): Promise<Sink> }>;

const savePicker = (): SavePicker | undefined => (window as unknown as { showSaveFilePicker?: SavePicker }).showSaveFilePicker?.bind(window);

export interface DownloadHooks {
  progress(bytes: number): void;
  waiting(waiting: boolean): void;
}

// A Download is begun while the person's click is handled: only then may a page
// ask where to write. Its sink is undefined if they thought better of it.
export async function openSink(entry: Entry, name: string, archive: boolean): Promise<Sink | undefined> {
  const pick = savePicker();
  if (pick !== undefined && (archive || entry.size > askFromBytes)) {
    try {
      return await (await pick({ suggestedName: name })).createWritable();
    } catch (error) {
      if (error instanceof DOMException && error.name === 'AbortError') return undefined;
      throw error;
    }
  }
  if (entry.size > mostHeldBytes) throw new Error(`This browser can save no more than ${sizeText(mostHeldBytes)} at once. Pack the file in parts, or use another browser.`);
  return held(name);
}

// held is a Sink that hands all it got to the browser at its end.
function held(name: string): Sink {
  let parts: Blob[] = [];
  let total = 0;
  return {
    async write(chunk) {
      total += chunk.length;
      if (total > mostHeldBytes) throw new Error(`This browser can save no more than ${sizeText(mostHeldBytes)} at once.`);
      parts.push(new Blob([chunk])); // which the browser may keep on disk
    },
    async close() {
      const url = URL.createObjectURL(new Blob(parts, { type: 'application/octet-stream' }));
      parts = [];
      const link = document.createElement('a');
      link.href = url;
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    },
    async abort() {
      parts = [];
    },
  };
}

const isMasked = (answer: Response): boolean => answer.headers.get('Fairlead-Redacted') === 'true';

// saveFile goes on where a connection broke, unless the file has changed. It
// returns whether secrets in it were masked.
export async function saveFile(api: FilesAPI, entry: Entry, sink: Sink, hooks: DownloadHooks, signal: AbortSignal): Promise<boolean> {
  let offset = 0;
  let etag = '';
  for (let failures = 0; ; ) {
    try {
      const answer = await api.read(entry.path, offset, etag, signal);
      if (offset > 0 && answer.status !== 206) throw new ApiError(412, 'The file has changed.');
      hooks.waiting(false);
      etag = answer.headers.get('ETag') ?? '';
      await pour(answer, async (chunk) => {
        await sink.write(chunk);
        offset += chunk.length;
        failures = 0;
        hooks.progress(offset);
      });
      return isMasked(answer);
    } catch (error) {
      signal.throwIfAborted();
      // Masked content has no tag, and no ranges.
      const again = outage(error) && (offset === 0 || etag !== '');
      if (error instanceof ApiError && error.status === 416 && offset > 0) return false; // all was there
      if (!again) throw error;
      hooks.waiting(true);
      await pause(++failures, signal);
    }
  }
}

// saveArchive can't go on where it broke: the folder is packed as it is sent.
export async function saveArchive(api: FilesAPI, entry: Entry, format: string, sink: Sink, hooks: DownloadHooks, signal: AbortSignal): Promise<boolean> {
  let total = 0;
  const answer = await api.archive(entry.path, format, signal);
  await pour(answer, async (chunk) => {
    await sink.write(chunk);
    hooks.progress((total += chunk.length));
  });
  return isMasked(answer);
}

// pour hands an answer's body on. That it broke off is an ApiError of status 0.
async function pour(answer: Response, write: (chunk: Uint8Array<ArrayBuffer>) => Promise<void>): Promise<void> {
  const reader = answer.body?.getReader();
  if (reader === undefined) return;
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch {
      throw new ApiError(0, 'The download was cut off.');
    }
    if (part.done) return;
    try {
      await write(part.value);
    } catch (error) {
      void reader.cancel().catch(() => {});
      throw error;
    }
  }
}

// saveName is a name for the person's own disk.
export const saveName = (path: string, ending = ''): string => (nameOf(path) || 'workspace').replace(/[\p{C}\p{Zl}\p{Zp}/\\:*?"<>|]/gu, '_') + ending;
