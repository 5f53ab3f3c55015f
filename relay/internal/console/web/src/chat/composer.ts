// Where a person writes to a coding agent: the text, its images, and what the
// button does.

import type { ChatOptions, Image } from '@fairlead/core';
import { byId, h, setHidden, setText } from '../ui/dom.ts';
import { visible } from '../ui/visible.ts';
import { imageOf, imageTypes, mostImageBytes, mostImages, type Provider } from './api.ts';
import type { Send } from './model.ts';

export interface ComposerActions {
  send(content: string, images: Image[], options: ChatOptions): void;
  stop(): void;
  askControl(): void;
}

const labels: Record<Send, string> = { send: 'Send', queue: 'Queue', ask: 'Ask to write', asked: 'Asked', none: 'Send' };

export class Composer {
  readonly #form = byId('chat-form', HTMLFormElement);
  readonly #text = byId('chat-text', HTMLTextAreaElement);
  readonly #send = byId('chat-send', HTMLButtonElement);
  readonly #stop = byId('chat-stop', HTMLButtonElement);
  readonly #mode = byId('chat-mode', HTMLSelectElement);
  readonly #images = byId('chat-images');
  readonly #pick = byId('chat-pick', HTMLInputElement);
  readonly #problem = byId('chat-problem');
  #does: Send = 'none';
  #chosen: Image[] = [];
  #takesImages = false;

  constructor(private readonly actions: ComposerActions) {
    this.#form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#text.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    this.#text.addEventListener('input', () => this.#grow());
    this.#stop.addEventListener('click', () => actions.stop());
    this.#text.addEventListener('paste', (event) => this.#take(event.clipboardData?.files, event));
    this.#form.addEventListener('dragover', (event) => event.preventDefault());
    this.#form.addEventListener('drop', (event) => this.#take(event.dataTransfer?.files, event));
    this.#pick.addEventListener('change', () => {
      this.#take(this.#pick.files ?? undefined);
      this.#pick.value = '';
    });
  }

  focus(): void {
    this.#text.focus();
  }

  // draw shows what can be done now.
  draw(does: Send, mayStop: boolean, mayTalk: boolean): void {
    this.#does = does;
    setHidden(this.#form, !mayTalk);
    setText(this.#send, labels[does]);
    this.#send.disabled = does === 'none' || does === 'asked';
    setHidden(this.#stop, !mayStop);
  }

  // offer shows the modes of a provider, its default first.
  offer(provider: Provider | undefined): void {
    const modes = provider?.permissionModes ?? [];
    const chosen = modes.includes(this.#mode.value) ? this.#mode.value : (provider?.defaultPermissionMode ?? '');
    this.#mode.replaceChildren(...modes.map((mode) => h('option', { value: mode }, mode)));
    this.#mode.value = chosen;
    setHidden(this.#mode, modes.length < 2);
    this.#takesImages = provider?.supportsImages === true;
    setHidden('chat-pick-label', !this.#takesImages);
  }

  #submit(): void {
    if (this.#does === 'ask') return this.actions.askControl();
    const content = this.#text.value.trim();
    if (this.#send.disabled || (content === '' && this.#chosen.length === 0)) return;
    this.actions.send(content, this.#chosen, this.#mode.value === '' ? {} : { permissionMode: this.#mode.value });
    this.#text.value = '';
    this.#chosen = [];
    this.#grow();
    this.#drawImages();
  }

  #grow(): void {
    this.#text.style.height = 'auto';
    this.#text.style.height = `${Math.min(this.#text.scrollHeight, 200)}px`;
  }

  #take(files: FileList | undefined, event?: Event): void {
    const images = [...(files ?? [])].filter(({ type }) => imageTypes.includes(type));
    if (images.length === 0 || !this.#takesImages) return;
    event?.preventDefault();
    void this.#add(images);
  }

  async #add(files: File[]): Promise<void> {
    setText(this.#problem, '');
    for (const file of files) {
      const total = this.#chosen.reduce((sum, { size = 0 }) => sum + size, file.size);
      if (this.#chosen.length >= mostImages || total > mostImageBytes) {
        setText(this.#problem, `At most ${mostImages} images, ${mostImageBytes >> 10} KiB together.`);
        break;
      }
      try {
        this.#chosen = [...this.#chosen, await imageOf(file)];
      } catch (error) {
        setText(this.#problem, error instanceof Error ? error.message : String(error));
      }
    }
    this.#drawImages();
  }

  #drawImages(): void {
    this.#images.replaceChildren(...this.#chosen.map((image) => {
      const drop = h('button', { class: 'plain', type: 'button', 'aria-label': `Remove ${visible(image.name ?? 'the image')}` }, '×');
      drop.addEventListener('click', () => {
        this.#chosen = this.#chosen.filter((other) => other !== image);
        this.#drawImages();
      });
      return h('li', {}, visible(image.name ?? 'image'), drop);
    }));
    setHidden(this.#images, this.#chosen.length === 0);
  }
}
