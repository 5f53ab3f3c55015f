// The panel with a live picture of the sandbox's browser, which agents drive.
// People only watch here, whichever tab they choose.

import { Stream, type Session } from '@fairlead/core';
import { byId, setAttribute, setHidden, setText } from '../ui/dom.ts';
import type { Side, SidePanel } from '../ui/side.ts';
import { visible } from '../ui/visible.ts';
import { drawable } from './jpeg.ts';
import { boundaryOf, MultipartParser } from './multipart.ts';
import { BrowserStrip, type BrowserTab } from './strip.ts';

// The sandbox says at least that nothing has changed.
const silenceMs = 60_000;
// How often to ask for address and title: after a picture, and at all.
const askMs = 1_000;
const askAtLeast = 3; // every so many times

interface BrowserStatus {
  state: string; // 'stopped', 'starting' or 'running'
  url?: string;
  title?: string;
  error?: string; // why the last start failed
  tabs?: BrowserTab[]; // url and title are the active one's
}

export class BrowserPanel implements SidePanel {
  readonly #panel = byId('browser');
  readonly #canvas = byId('browser-picture', HTMLCanvasElement);
  readonly #large = byId('browser-large', HTMLButtonElement);
  readonly #strip = new BrowserStrip((id) => this.#watch(id));
  #tab: number | undefined; // that is watched; undefined: whichever is active
  #stream: Stream | undefined; // while the panel is seen
  #ticker: number | undefined;
  #status: BrowserStatus = { state: '' };
  #trouble = ''; // why there is no live picture
  #news = false; // a picture arrived after address and title were requested
  #next: Uint8Array<ArrayBuffer> | undefined; // the newest picture that hasn't been drawn
  #drawing = false;
  #drawn = false; // the canvas shows this browser

  constructor(private readonly session: Session, side: Side) {
    side.add('browser', this);
    this.#large.addEventListener('click', () => {
      const large = this.#panel.classList.toggle('large');
      setAttribute(this.#large, 'aria-pressed', String(large));
    });
    document.addEventListener('visibilitychange', () => {
      if (this.#panel.hidden) return;
      if (document.hidden) this.#pause();
      else this.#resume();
    });
  }

  opened(): void {
    this.#status = { state: '' };
    this.#trouble = '';
    this.#tab = undefined;
    this.#forget();
    this.#draw();
    this.#resume();
    byId('browser-close', HTMLButtonElement).focus();
  }

  closed(): void {
    this.#pause();
    this.#forget();
  }

  // resume watches, which costs the sandbox something: nobody does whose tab is
  // hidden.
  #resume(): void {
    if (this.#stream !== undefined) return;
    this.#stream = new Stream({
      silenceMs,
      open: (signal, freshGrant) => this.session.request(this.#tab === undefined ? '/browser/frames' : `/browser/frames?tab=${this.#tab}`, { signal }, freshGrant),
      begin: (answer) => this.#begin(answer),
      connected: (connected) => this.#say(connected ? '' : 'Not connected: the picture may be old.'),
      over: (error) => this.#say(error.status === 404 ? 'This sandbox has no browser that can be watched.' : error.message),
    });
    this.#stream.start();
    let turn = 0;
    this.#ticker = window.setInterval(() => {
      if (!this.#news && ++turn < askAtLeast) return;
      turn = 0;
      void this.#ask();
    }, askMs);
    void this.#ask();
  }

  #pause(): void {
    this.#stream?.stop();
    this.#stream = undefined;
    clearInterval(this.#ticker);
    this.#next = undefined;
  }

  // watch shows another tab. Whoever chooses the active one follows that.
  #watch(id: number): void {
    const tab = this.#tabs().find((t) => t.id === id);
    const chosen = tab === undefined || tab.active ? undefined : id;
    if (chosen === this.#tab) return;
    this.#tab = chosen;
    this.#forget();
    this.#draw();
    if (this.#stream === undefined) return;
    this.#pause();
    this.#resume();
  }

  #tabs(): BrowserTab[] {
    return this.#status.tabs ?? [];
  }

  // shown returns the tab that is watched, if it is known.
  #shown(): BrowserTab | undefined {
    return this.#tabs().find((tab) => (this.#tab === undefined ? tab.active : tab.id === this.#tab));
  }

  #begin(answer: Response): (bytes: Uint8Array<ArrayBuffer>) => void {
    const parser = new MultipartParser(boundaryOf(answer.headers.get('Content-Type') ?? ''));
    const stream = this.#stream;
    return (bytes) => {
      for (const { type, body } of parser.push(bytes)) {
        if (type !== 'image/jpeg' || stream !== this.#stream) continue;
        this.#next = body;
        this.#news = true;
      }
      if (this.#next !== undefined && !this.#drawing) void this.#paint();
    };
  }

  // paint draws the newest picture, and what has come by then.
  async #paint(): Promise<void> {
    this.#drawing = true;
    for (let picture = this.#next; picture !== undefined; picture = this.#next) {
      this.#next = undefined;
      if (!drawable(picture)) continue;
      try {
        const bitmap = await createImageBitmap(new Blob([picture], { type: 'image/jpeg' }));
        if (this.#stream !== undefined) this.#show(bitmap);
        bitmap.close();
      } catch {
        // A picture that can't be decoded; the next one may be.
      }
    }
    this.#drawing = false;
  }

  #show(bitmap: ImageBitmap): void {
    if (this.#canvas.width !== bitmap.width) this.#canvas.width = bitmap.width;
    if (this.#canvas.height !== bitmap.height) this.#canvas.height = bitmap.height;
    this.#canvas.getContext('2d')?.drawImage(bitmap, 0, 0);
    if (this.#drawn) return;
    this.#drawn = true;
    if (this.#status.state !== 'running') this.#status = { state: 'running' }; // the details follow
    this.#draw();
  }

  async #ask(): Promise<void> {
    this.#news = false;
    const stream = this.#stream;
    try {
      const status = await this.session.get<BrowserStatus>('/browser');
      if (stream !== this.#stream) return;
      this.#status = status;
      if (status.state === 'stopped') this.#forget();
      if (this.#tab !== undefined && this.#shown() === undefined) this.#watch(0); // it is closed
      this.#draw();
    } catch {
      // The stream says what is wrong.
    }
  }

  // forget keeps no picture of a browser that is gone.
  #forget(): void {
    this.#drawn = false;
    this.#next = undefined;
    this.#canvas.width = this.#canvas.height = 1;
  }

  #say(trouble: string): void {
    this.#trouble = trouble;
    this.#draw();
  }

  #draw(): void {
    const shown = this.#shown();
    const { url = '', title = '' } = shown ?? this.#status;
    this.#strip.draw(this.#tabs(), shown?.id);
    setAttribute(byId('browser-stage'), 'role', this.#tabs().length < 2 ? null : 'tabpanel');
    setText('browser-title', title === '' ? 'Browser' : visible(title));
    const address = byId('browser-url');
    setText(address, visible(url));
    setAttribute(address, 'title', url === '' ? null : visible(url));
    setHidden(address, url === '');
    const note = byId('browser-note');
    setText(note, this.#trouble);
    setHidden(note, this.#trouble === '');
    setHidden(this.#canvas, !this.#drawn);
    this.#canvas.classList.toggle('old', this.#trouble !== '');
    setAttribute(this.#canvas, 'aria-label', `Picture of the sandbox’s browser${title === '' ? '' : `: ${visible(title)}`}`);
    const empty = byId('browser-empty');
    setText(empty, this.#drawn || this.#trouble !== '' ? '' : emptyText(this.#status));
    setHidden(empty, this.#drawn);
  }
}

function emptyText({ state, error = '' }: BrowserStatus): string {
  if (error !== '' && state !== 'running') return `The browser could not start: ${visible(error)}`;
  switch (state) {
    case 'stopped':
      return 'The sandbox’s browser is not running. It starts when an agent opens a page.';
    case 'starting':
      return 'The browser is starting…';
    default:
      return 'Waiting for a picture…';
  }
}
