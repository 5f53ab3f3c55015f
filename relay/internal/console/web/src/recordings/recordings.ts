// The list of a session's recordings, and playing one.

import type { RecordingInfo } from '@fairlead/core';
import { byId, h, icon, setHidden, setText } from '../ui/dom.ts';
import { messageOf, size } from '../ui/format.ts';
import type { Playing } from './player.ts';

export interface RecordingHooks {
  list(): Promise<RecordingInfo[]>;
  fetch(id: string): Promise<Blob>;
  label(recording: RecordingInfo): string;
}

export class Recordings {
  readonly #dialog = byId('recordings', HTMLDialogElement);
  readonly #list = byId('recordings-list');
  readonly #stage = byId('player');
  readonly #note = byId('recordings-note');
  readonly #back = byId('recordings-back', HTMLButtonElement);
  #playing: Playing | undefined;
  #turn = 0; // answers to earlier requests are ignored

  constructor(private readonly hooks: RecordingHooks) {
    this.#back.addEventListener('click', () => void this.#showList());
    this.#dialog.addEventListener('close', () => this.#stop());
    // The player keeps Escape for its help, and from the dialog.
    this.#stage.addEventListener(
      'keydown',
      (event) => {
        if (event.key !== 'Escape' || this.#stage.querySelector('.ap-overlay-help') !== null || document.fullscreenElement !== null) return;
        event.preventDefault();
        event.stopPropagation();
        this.#dialog.close();
      },
      { capture: true },
    );
  }

  async open(): Promise<void> {
    this.#dialog.showModal();
    this.#dialog.focus(); // rather than its close button
    await this.#showList();
  }

  async #showList(): Promise<void> {
    this.#stop();
    const turn = ++this.#turn;
    this.#mode('list', 'Recordings');
    setText(this.#note, 'Reading…');
    try {
      const list = await this.hooks.list();
      if (turn !== this.#turn) return;
      const sorted = [...list].sort((a, b) => b.started_at - a.started_at);
      this.#list.replaceChildren(...sorted.map((recording) => this.#row(recording)));
      setText(this.#note, sorted.length === 0 ? 'Nothing has been recorded in this session.' : '');
    } catch (error) {
      if (turn === this.#turn) setText(this.#note, messageOf(error));
    }
  }

  #row(recording: RecordingInfo): HTMLElement {
    const label = this.hooks.label(recording);
    const running = recording.ended_at === undefined;
    const play = h('button', { class: 'button small', type: 'button', 'aria-label': `Play ${label}`, 'data-testid': `btn-play-${recording.id}` }, icon('play'), 'Play');
    const download = h('button', { class: 'plain', type: 'button', 'aria-label': `Download ${label}`, title: 'Download', 'data-testid': `btn-download-${recording.id}` }, icon('download'));
    play.addEventListener('click', () => void this.#play(recording));
    download.addEventListener('click', () => void this.#download(recording));
    const title = h('b', {}, label);
    if (running) title.append(h('span', { class: 'rec' }, 'REC'));
    const about = h('span', { class: 'who' }, title, h('span', { class: 'fine' }, details(recording, Date.now())));
    if (recording.note) about.append(h('span', { class: 'fine warn' }, recording.note));
    return h('li', { class: 'recording', 'data-testid': `recording-${recording.id}` }, about, play, download);
  }

  async #play(recording: RecordingInfo): Promise<void> {
    const turn = ++this.#turn;
    this.#mode('player', this.hooks.label(recording));
    setText(this.#note, 'Reading…');
    try {
      const [{ play }, file] = await Promise.all([import('./player.ts'), this.hooks.fetch(recording.id)]);
      const text = await file.text();
      if (turn !== this.#turn) return;
      setText(this.#note, details(recording, Date.now()));
      this.#playing = play(text, this.#stage);
      this.#playing.focus();
    } catch (error) {
      if (turn === this.#turn) setText(this.#note, messageOf(error));
    }
  }

  async #download(recording: RecordingInfo): Promise<void> {
    try {
      const url = URL.createObjectURL(await this.hooks.fetch(recording.id));
      const started = new Date(recording.started_at).toISOString().slice(0, 16).replace(/[:T]/g, '-');
      h('a', { href: url, download: `${this.hooks.label(recording).replace(/[^\w.-]+/g, '-')}-${started}.cast` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch (error) {
      setText(this.#note, messageOf(error));
    }
  }

  #mode(mode: 'list' | 'player', title: string): void {
    this.#dialog.dataset.mode = mode;
    setText('recordings-title', title);
    setHidden(this.#back, mode === 'list');
    setHidden(this.#list, mode !== 'list');
    setHidden(this.#stage, mode === 'list');
  }

  #stop(): void {
    this.#turn++;
    this.#playing?.dispose();
    this.#playing = undefined;
    this.#stage.replaceChildren();
  }
}

// details says when a recording was made, how long it is, and how large.
export function details({ started_at, ended_at, bytes, cols, rows }: RecordingInfo, now: number): string {
  const when = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' }).format(started_at);
  return [when, duration((ended_at ?? now) - started_at), size(bytes), `${cols} × ${rows}`].join(' · ');
}

export function duration(ms: number): string {
  const all = Math.max(0, Math.round(ms / 1000));
  const [hours, minutes, seconds] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  const two = (n: number) => String(n).padStart(2, '0');
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
}
