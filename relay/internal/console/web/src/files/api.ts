// The workspace by REST, at whichever relay answers.

import { ApiError, call, reasonOf, type Session, type SessionCall } from '@fairlead/core';
import type { Entry, FileKind } from './tree.ts';

const listMs = 60_000; // a folder may be large
const changeMs = 60_000; // so may one that is deleted
// A connection idle for this long counts as lost.
const stallMs = 30_000;
// What the agent does with the last byte takes longer: the file reaches the disk.
const answerMs = 90_000;

interface FileInfo {
  name: string;
  path: string;
  type: FileKind;
  size: number;
  mod_time: string;
  target?: string;
  etag?: string;
}

const entryOf = ({ name, path, type, size, mod_time, target = '', etag = '' }: FileInfo): Entry => ({
  name, path, type, size, modified: Date.parse(mod_time) || 0, target, etag,
});

// A Condition says what may be there before a file is written.
export type Condition = { kind: 'new' } | { kind: 'replace'; etag: string };

export type Progress = (bytes: number) => void;

export class FilesAPI {
  constructor(private readonly session: Session) {}

  async list(folder: string): Promise<Entry[]> {
    const answer = await this.#call(`files?${query({ path: folder })}`, { ms: listMs });
    return (((await answer.json()) as { files: FileInfo[] | null }).files ?? []).map(entryOf);
  }

  async stat(path: string): Promise<Entry> {
    return entryOf((await (await this.#call(`file/stat?${query({ path })}`)).json()) as FileInfo);
  }

  // there is stat, and undefined where there is nothing.
  async there(path: string): Promise<Entry | undefined> {
    try {
      return await this.stat(path);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return undefined;
      throw error;
    }
  }

  async mkdir(path: string): Promise<void> {
    await this.#call('files/mkdir', { method: 'POST', body: { path } });
  }

  // move may have been made by a request whose answer was lost.
  async move(from: string, to: string): Promise<void> {
    try {
      await this.#call('files/move', { method: 'POST', body: { from, to }, ms: changeMs });
    } catch (error) {
      if (!(error instanceof ApiError) || (error.status !== 0 && error.status !== 404)) throw error;
      if ((await this.there(from)) !== undefined || (await this.there(to)) === undefined) throw error;
    }
  }

  // remove succeeds when there is nothing to remove.
  async remove(path: string): Promise<void> {
    try {
      await this.#call(`file?${query({ path })}`, { method: 'DELETE', ms: changeMs });
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
    }
  }

  watch(signal: AbortSignal, freshGrant: boolean): Promise<Response> {
    return this.session.request(`/files/watch?${query({ path: '/', recursive: 'true' })}`, { signal }, freshGrant);
  }

  // read returns what is in a file from offset on, if its ETag is still etag.
  read(path: string, offset: number, etag: string, signal: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = etag === '' ? {} : { 'If-Match': etag };
    if (offset > 0) headers['Range'] = `bytes=${offset}-`;
    return this.#fetch(`file?${query({ path })}`, headers, signal);
  }

  // same reports whether the file has this content.
  async same(path: string, content: ArrayBuffer, signal: AbortSignal): Promise<boolean> {
    const there = new Uint8Array(await (await this.read(path, 0, '', signal)).arrayBuffer());
    const wanted = new Uint8Array(content);
    return there.length === wanted.length && there.every((byte, at) => byte === wanted[at]);
  }

  archive(folder: string, format: string, signal: AbortSignal): Promise<Response> {
    return this.#fetch(`files/archive?${query({ path: folder, format })}`, {}, signal);
  }

  // put writes a whole file.
  async put(path: string, body: ArrayBuffer, condition: Condition, progress: Progress, signal: AbortSignal): Promise<void> {
    await this.#send('PUT', `file?${query({ path })}`, conditionHeaders(condition), body, progress, signal);
  }

  // createUpload returns the id of a resumable upload.
  async createUpload(path: string, size: number, replace: boolean, signal: AbortSignal): Promise<string> {
    const name = btoa(String.fromCharCode(...new TextEncoder().encode(path)));
    const headers = { 'Upload-Length': String(size), 'Upload-Metadata': `path ${name}` };
    const answer = await this.#send('POST', `uploads?${query({ overwrite: String(replace) })}`, { ...tus, ...headers }, null, () => {}, signal);
    const id = answer.getResponseHeader('Location')?.split('/').pop() ?? '';
    if (id === '') throw new ApiError(502, 'The sandbox did not say where to upload.');
    return id;
  }

  async uploadOffset(id: string, signal: AbortSignal): Promise<number> {
    return offsetOf(await this.#send('HEAD', `uploads/${encodeURIComponent(id)}`, tus, null, () => {}, signal));
  }

  // patchUpload adds to an upload and returns where it is then.
  async patchUpload(id: string, offset: number, body: ArrayBuffer, progress: Progress, signal: AbortSignal): Promise<number> {
    const headers = { ...tus, 'Upload-Offset': String(offset), 'Content-Type': 'application/offset+octet-stream' };
    return offsetOf(await this.#send('PATCH', `uploads/${encodeURIComponent(id)}`, headers, body, progress, signal));
  }

  async dropUpload(id: string): Promise<void> {
    await this.#send('DELETE', `uploads/${encodeURIComponent(id)}`, tus, null, () => {}, AbortSignal.timeout(changeMs));
  }

  #call(route: string, request: SessionCall = {}): Promise<Response> {
    return this.#anew((fresh) => this.session.request(`/${route}`, request, fresh));
  }

  #fetch(route: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response> {
    return this.#anew((fresh) => this.session.ask(async (origin, grant) => {
      try {
        return await call(`${this.session.at(origin)}/${route}`, { bearer: grant, headers, signal });
      } catch (error) {
        throw signal.aborted ? signal.reason : error; // no fault of that relay
      }
    }, fresh));
  }

  #send(method: string, route: string, headers: Record<string, string>, body: ArrayBuffer | null, progress: Progress, signal: AbortSignal): Promise<XMLHttpRequest> {
    return this.#anew((fresh) => this.session.ask((origin, grant) => send(method, `${this.session.at(origin)}/${route}`, { ...headers, Authorization: `Bearer ${grant}` }, body, progress, signal), fresh));
  }

  // anew asks once more with a new grant when the one in use is no good.
  async #anew<T>(ask: (fresh: boolean) => Promise<T>): Promise<T> {
    try {
      return await ask(false);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
      return ask(true);
    }
  }
}

const tus = { 'Tus-Resumable': '1.0.0' };

const query = (values: Record<string, string>): string => new URLSearchParams(values).toString();

function conditionHeaders(condition: Condition): Record<string, string> {
  if (condition.kind === 'new') return { 'If-None-Match': '*' };
  return condition.etag === '' ? {} : { 'If-Match': condition.etag };
}

function offsetOf(answer: XMLHttpRequest): number {
  const offset = Number(answer.getResponseHeader('Upload-Offset') ?? NaN);
  if (!Number.isSafeInteger(offset) || offset < 0) throw new ApiError(502, 'The sandbox did not say how much it has.');
  return offset;
}

// send is call for a body whose way one wants to see, which fetch can't show.
function send(method: string, url: string, headers: Record<string, string>, body: ArrayBuffer | null, progress: Progress, signal: AbortSignal): Promise<XMLHttpRequest> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    let timer: number | undefined;
    const within = (ms: number) => {
      clearTimeout(timer);
      timer = window.setTimeout(() => request.abort(), ms);
    };
    const abort = () => request.abort();
    request.open(method, url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => {
      within(event.loaded === event.total ? answerMs : stallMs);
      progress(event.loaded);
    };
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) resolve(request);
      else reject(new ApiError(request.status, reasonOf(request.status, request.responseText)));
    };
    request.onerror = () => reject(new ApiError(0, 'The relay does not answer.'));
    request.onabort = () => reject(signal.aborted ? signal.reason : new ApiError(0, 'The relay does not answer.'));
    request.onloadend = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    };
    signal.addEventListener('abort', abort);
    if (signal.aborted) return reject(signal.reason);
    within(body === null ? answerMs : stallMs);
    request.send(body);
  });
}
