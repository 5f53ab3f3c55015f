// The requests about conversations: which there are, what was said in them, and
// which coding agents there are.

import { call, longMs, type Call, type ChatEvent, type Image, type Session } from '@fairlead/core';
import type { Talk } from './model.ts';

export interface Provider {
  provider: string;
  permissionModes: string[];
  defaultPermissionMode: string;
  supportsImages: boolean;
}

interface SessionRow {
  sessionId?: string;
  id?: string;
  provider: string;
  summary?: string;
  sessionTitle?: string;
  lastActivity?: string;
  isProcessing?: boolean;
}

export class ChatAPI {
  constructor(private readonly session: Session) {}

  async providers(): Promise<Provider[]> {
    return (await this.#get<{ providers: Provider[] }>('/providers/capabilities')).providers;
  }

  // recent are the conversations, the newest first.
  async recent(): Promise<Talk[]> {
    const { sessions } = await this.#get<{ sessions: SessionRow[] }>('/providers/sessions/recent?limit=100');
    return sessions.map((row) => ({
      id: row.sessionId ?? row.id ?? '', provider: row.provider, title: row.summary ?? row.sessionTitle ?? '',
      lastActivity: row.lastActivity ?? '', running: row.isProcessing === true,
    }));
  }

  // messages are the newest rows of the history.
  async messages(id: string, limit: number): Promise<{ messages: ChatEvent[]; hasMore: boolean }> {
    return this.#get(`/providers/sessions/${encodeURIComponent(id)}/messages?limit=${limit}&offset=0`);
  }

  async create(provider: string, projectPath: string, title: string): Promise<string> {
    const body = { provider, projectPath, ...(title === '' ? {} : { initialMessage: title }) };
    return (await this.#request<{ sessionId: string }>('/providers/sessions', { method: 'POST', body })).sessionId;
  }

  async rename(id: string, summary: string): Promise<void> {
    await this.#request(`/providers/sessions/${encodeURIComponent(id)}`, { method: 'PUT', body: { summary } });
  }

  async archive(id: string): Promise<void> {
    await this.#request(`/providers/sessions/${encodeURIComponent(id)}`, { method: 'DELETE' });
  }

  // upload puts an image into the sandbox that is too large for a message itself.
  // Images are the session's, whichever project they are said to be for.
  async upload(file: File): Promise<Image> {
    const [project] = await this.#answer<{ projectId: string }[]>('/projects', {});
    const form = new FormData();
    form.append('images', file);
    const { images } = await this.#answer<{ images: Image[] }>(`/projects/${encodeURIComponent(project?.projectId ?? '')}/upload-images`, { method: 'POST', form, ms: longMs });
    const [image] = images;
    if (image === undefined) throw new Error('The sandbox has kept no image.');
    return image;
  }

  #get<T>(path: string): Promise<T> {
    return this.#request(path, {});
  }

  async #request<T>(path: string, request: Omit<Call, 'bearer'>): Promise<T> {
    return (await this.#answer<{ success?: boolean; data: T }>(path, request)).data;
  }

  async #answer<T>(path: string, request: Omit<Call, 'bearer'>): Promise<T> {
    const answer = await this.session.ask((origin, grant) => call(`${origin}/api${path}`, { ...request, bearer: grant }, this.session.platform));
    return (await answer.json()) as T;
  }
}

// Images that a message may have (seed 002), and how many bytes all of those may
// have that are within it.
export const imageTypes = ['image/jpeg', 'image/png', 'image/gif', 'image/webp'];
export const mostImages = 5;
export const mostImageBytes = 5 << 20; // of one
export const mostInlineBytes = 600 << 10;

// imageOf reads a file that was dropped, pasted or chosen.
export async function imageOf(file: File): Promise<Image> {
  const data = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error('The file can’t be read.'));
    reader.readAsDataURL(file);
  });
  return { name: file.name, data, size: file.size, mimeType: file.type };
}
