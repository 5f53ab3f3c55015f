// Where a person writes to a coding agent: the text, its images, and what the
// button does.

import type { ChatOptions, Image } from '@fairlead/core';
import { byId, h, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';
import { imageOf, imageTypes, mostImageBytes, mostImages, mostInlineBytes, type Provider } from './api.ts';
import type { Send } from './model.ts';

export interface ComposerActions {
  send(content: string, images: Image[], options: ChatOptions): string; // why not, '' if it is sent
  upload(file: File): Promise<Image>;
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
  #chosen: readonly Image[] = [];
  #adding = 0; // images that are being read
  #takesImages = false;
  #talk = ''; // the conversation that is written to
  readonly #drafts = new Map<string, { text: string; images: readonly Image[] }>(); // of the others

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
    // Anywhere in the panel: the browser would leave the page for a file.
    const panel = byId('chat');
    const files = (event: DragEvent) => event.dataTransfer?.types.includes('Files') === true;
    panel.addEventListener('dragover', (event) => files(event) && event.preventDefault());
    panel.addEventListener('drop', (event) => {
      if (!files(event)) return;
      event.preventDefault();
      this.#take(event.dataTransfer?.files, event);
    });
    this.#pick.addEventListener('change', () => {
      this.#take(this.#pick.files ?? undefined);
      this.#pick.value = '';
    });
  }

  focus(): void {
    this.#text.focus();
  }

  // turn goes to another conversation. What was begun in each stays there.
  turn(talk: string): void {
    if (talk === this.#talk) return;
    this.#drafts.set(this.#talk, { text: this.#text.value, images: this.#chosen });
    const draft = this.#drafts.get(talk);
    this.#drafts.delete(talk);
    this.#talk = talk;
    this.#text.value = draft?.text ?? '';
    this.#chosen = draft?.images ?? [];
    this.#grow();
    this.#drawImages();
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
    const options = this.#mode.value === '' ? {} : { permissionMode: this.#mode.value };
    const problem = this.#adding > 0 ? 'An image is still being read. Send it in a moment.' : this.actions.send(content, [...this.#chosen], options);
    setText(this.#problem, problem);
    if (problem !== '') return;
    this.#text.value = '';
    this.#chosen = [];
    this.#grow();
    this.#drawImages();
  }

  #grow(): void {
    this.#text.style.height = 'auto';
    const tall = this.#text.scrollHeight; // 0 while it isn't shown
    if (tall > 0) this.#text.style.height = `${Math.min(tall, 200)}px`;
  }

  #take(files: FileList | undefined, event?: Event): void {
    if (files === undefined || files.length === 0 || this.#form.hidden || this.#talk === '') return;
    event?.preventDefault();
    void this.#add([...files]);
  }

  // add takes files one by one, and says which it can't take.
  async #add(files: File[]): Promise<void> {
    const talk = this.#talk;
    const problems: string[] = [];
    this.#adding++;
    setText(this.#problem, '');
    for (const file of files) {
      try {
        const problem = this.#problemOf(file);
        if (problem !== '') throw new Error(problem);
        this.#keep(talk, await this.#read(file));
      } catch (error) {
        problems.push(messageOf(error));
      }
    }
    this.#adding--;
    if (problems.length > 0) setText(this.#problem, problems.join(' '));
    this.#drawImages();
  }

  #problemOf({ name, type, size }: File): string {
    if (!this.#takesImages) return 'This coding agent takes no images.';
    if (!imageTypes.includes(type)) return `“${visible(name)}” can’t be sent: images may be JPEG, PNG, GIF or WebP.`;
    if (size > mostImageBytes) return `“${visible(name)}” is too large: an image may have ${mostImageBytes >> 20} MiB.`;
    return this.#chosen.length >= mostImages ? `A message may have ${mostImages} images: “${visible(name)}” is left out.` : '';
  }

  // read has large images wait in the sandbox: a message has room for small ones.
  async #read(file: File): Promise<Image> {
    const inline = this.#chosen.reduce((sum, { data, size = 0 }) => sum + (data.startsWith('data:') ? size : 0), file.size);
    if (inline <= mostInlineBytes) return imageOf(file);
    setText(this.#problem, `Uploading “${visible(file.name)}”…`);
    try {
      return await this.actions.upload(file);
    } catch (error) {
      throw new Error(`“${visible(file.name)}” can’t be uploaded: ${visible(messageOf(error))}`);
    } finally {
      setText(this.#problem, '');
    }
  }

  // keep adds an image to the message that it was meant for.
  #keep(talk: string, image: Image): void {
    if (talk === this.#talk) this.#chosen = [...this.#chosen, image];
    else this.#drafts.set(talk, { text: this.#drafts.get(talk)?.text ?? '', images: [...(this.#drafts.get(talk)?.images ?? []), image] });
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
