// The dialog about variables and secrets. A value is in this page from the
// moment it is typed until the sandbox has it, or the dialog is closed: in no
// storage, and in no element that shows it.

import type { Session } from '@fairlead/core';
import { ask } from '../ui/ask.ts';
import { byId, h, icon, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';
import { domainsOf, flagsOf, looksLikeFile, ofProvider, parse, problemOf, requestOf, suggest, type Addition, type EnvRequest, type EnvVariable, whenText } from './env.ts';

export class EnvDialog {
  readonly #dialog = byId('env', HTMLDialogElement);
  readonly #note = byId('env-note');
  readonly #when = byId('env-when');
  readonly #name = byId('env-name', HTMLInputElement);
  readonly #value = byId('env-value', HTMLInputElement);
  readonly #secret = byId('env-secret', HTMLInputElement);
  readonly #protected = byId('env-protected', HTMLInputElement);
  readonly #domains = byId('env-domains', HTMLInputElement);
  readonly #scope = byId('env-scope', HTMLSelectElement);
  readonly #now = byId('env-apply-now', HTMLInputElement);
  readonly #save = byId('env-save', HTMLButtonElement);
  #pasted: string | null = null; // a value of several lines, which an input would join
  #file: Addition[] = []; // what a .env file says
  #touched = false; // the person has said whether it is broker-protected
  #turn = 0; // answers to earlier requests are ignored

  // terminals are those that run.
  constructor(private readonly session: Session, private readonly terminals: () => { id: string; label: string }[]) {
    this.#name.addEventListener('input', () => this.#guess());
    this.#value.addEventListener('input', () => this.#long(null));
    this.#secret.addEventListener('change', () => this.#draw());
    this.#protected.addEventListener('change', () => {
      this.#touched = true;
      this.#draw();
    });
    for (const field of [this.#name, this.#value]) field.addEventListener('paste', (event) => this.#paste(event, field));
    for (const field of [this.#name, this.#value, this.#domains]) {
      field.addEventListener('keydown', (event) => {
        if (event.key !== 'Enter' || event.isComposing) return;
        event.preventDefault();
        void this.#send();
      });
    }
    this.#save.addEventListener('click', () => void this.#send());
    byId('env-paste', HTMLButtonElement).addEventListener('click', () => void this.#clipboard());
    this.#dialog.addEventListener('close', () => this.#clear());
  }

  open(): void {
    this.#clear();
    this.#now.checked = false;
    const all = h('option', { value: '' }, 'All terminals of this session');
    this.#scope.replaceChildren(all, ...this.terminals().map(({ id, label }) => h('option', { value: id }, `Only ${label}`)));
    byId('env-list').replaceChildren();
    this.#dialog.showModal();
    this.#name.focus();
    void this.#refresh();
  }

  async #refresh(): Promise<void> {
    const turn = ++this.#turn;
    setText(this.#note, 'Reading…');
    setText(this.#when, '');
    try {
      const list = (await this.session.get<{ variables: EnvVariable[] | null }>('/env')).variables ?? [];
      if (turn !== this.#turn) return;
      const labels = new Map(this.terminals().map(({ id, label }) => [id, label]));
      list.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
      byId('env-list').replaceChildren(...list.map((variable) => this.#row(variable, labels)));
      setHidden('env-none', list.length > 0);
      setText(this.#note, '');
    } catch (error) {
      if (turn === this.#turn) setText(this.#note, messageOf(error));
    }
  }

  #row(variable: EnvVariable, labels: Map<string, string>): HTMLElement {
    const name = visible(variable.name);
    const unset = h('button', { class: 'button small', type: 'button', 'aria-label': `Unset ${name}`, 'data-testid': `btn-unset-${variable.name}` }, 'Unset');
    unset.addEventListener('click', () => void this.#unset(variable));
    const where = variable.pty_id === undefined ? [] : [`only ${labels.get(variable.pty_id) ?? 'a terminal that has ended'}`];
    const about = h('span', { class: 'who' }, h('b', { class: 'mono' }, name), h('span', { class: 'fine' }, [...flagsOf(variable), ...where].join(' · ')));
    return h('li', { class: 'recording', 'data-testid': `env-${variable.name}` }, about, unset);
  }

  async #unset({ name, pty_id }: EnvVariable): Promise<void> {
    if (!(await ask(`Unset ${visible(name)}?`, 'Its value can’t be read again from here.', 'Unset'))) return;
    await this.#post({ unset: [name], apply_now: this.#now.checked }, pty_id ?? '', `${visible(name)} is unset`);
  }

  async #send(): Promise<void> {
    const additions = this.#file.length > 0 ? this.#file : [this.#typed()];
    const problem = additions.map(problemOf).find((text) => text !== '') ?? '';
    this.#problem(problem);
    if (problem !== '') return;
    const done = additions.length === 1 ? `${additions[0]?.name ?? ''} is set` : `${additions.length} variables are set`;
    if (!(await this.#post(requestOf(additions, this.#now.checked), this.#scope.value, done))) return;
    this.#clear();
    this.#name.focus();
  }

  // post sends a change once, and returns whether it was made.
  async #post(request: EnvRequest, pty: string, done: string): Promise<boolean> {
    if (this.#save.disabled) return false;
    this.#save.disabled = true;
    this.#problem('');
    try {
      await this.session.change('', `${pty === '' ? '' : `/ptys/${encodeURIComponent(pty)}`}/env`, { method: 'POST', body: request });
      await this.#refresh();
      setText(this.#note, done);
      setText(this.#when, whenText(request.apply_now));
      return true;
    } catch (error) {
      this.#problem(messageOf(error));
      return false;
    } finally {
      this.#save.disabled = false;
    }
  }

  #typed(): Addition {
    const secret = this.#secret.checked;
    const brokered = secret && this.#protected.checked;
    return { name: this.#name.value.trim(), value: this.#pasted ?? this.#value.value, secret, brokered, domains: domainsOf(this.#domains.value) };
  }

  // guess protects what a provider is known for, until the person has a say.
  #guess(): void {
    if (!this.#touched) this.#protected.checked = ofProvider(this.#name.value.trim());
    this.#draw();
  }

  #paste(event: ClipboardEvent, field: HTMLInputElement): void {
    const text = event.clipboardData?.getData('text/plain') ?? '';
    const isFile = field === this.#name ? text.includes('=') : this.#name.value.trim() === '' && text.includes('\n');
    if (isFile && looksLikeFile(text)) {
      event.preventDefault();
      this.#read(text);
    } else if (field === this.#value && /\r|\n/.test(text.trim())) {
      event.preventDefault();
      this.#value.value = '';
      this.#long(text.replace(/\r\n?/g, '\n'));
    }
  }

  async #clipboard(): Promise<void> {
    try {
      const text = await navigator.clipboard.readText();
      if (!looksLikeFile(text)) return this.#problem('There are no lines like NAME=value in the clipboard.');
      this.#read(text);
    } catch {
      this.#problem('The browser does not let this page read the clipboard: paste into the field for the name.');
    }
  }

  #read(text: string): void {
    const { additions, skipped } = parse(text);
    this.#file = additions;
    this.#problem(skipped.length === 0 ? '' : `Not understood: ${skipped.length === 1 ? 'line' : 'lines'} ${skipped.slice(0, 8).join(', ')}${skipped.length > 8 ? '…' : ''}`);
    this.#draw();
  }

  #long(text: string | null): void {
    this.#pasted = text;
    this.#value.placeholder = text === null ? '' : `${text.split('\n').length} lines pasted`;
  }

  #problem(text: string): void {
    setText('env-problem', text);
  }

  #clear(): void {
    for (const field of [this.#name, this.#value, this.#domains]) field.value = '';
    this.#long(null);
    this.#file = [];
    this.#touched = false;
    this.#secret.checked = true;
    this.#protected.checked = false;
    this.#problem('');
    setText(this.#note, '');
    this.#draw();
  }

  #draw(): void {
    const several = this.#file.length > 0;
    const secret = this.#secret.checked;
    setHidden('env-one', several);
    setHidden('env-many', !several);
    this.#protected.disabled = !secret;
    setHidden('env-hosts', !secret || !this.#protected.checked || ofProvider(this.#name.value.trim()));
    setText(this.#save, several ? `Set ${this.#file.length} ${this.#file.length === 1 ? 'variable' : 'variables'}` : 'Set');
    byId('env-many').replaceChildren(...this.#file.map((addition) => this.#choice(addition)));
  }

  // choice is a variable of a file, of which only the name is shown.
  #choice(addition: Addition): HTMLElement {
    const box = (label: string, name: 'secret' | 'brokered', enabled: boolean) => {
      const input = h('input', { type: 'checkbox' });
      input.checked = enabled && addition[name];
      input.disabled = !enabled;
      input.addEventListener('change', () => {
        addition[name] = input.checked;
        if (!addition.secret) addition.brokered = false;
        this.#draw();
      });
      return h('label', { class: 'check' }, input, label);
    };
    const drop = h('button', { class: 'plain', type: 'button', 'aria-label': `Leave out ${addition.name}`, title: 'Leave out' }, icon('close'));
    drop.addEventListener('click', () => {
      this.#file = this.#file.filter((other) => other !== addition);
      this.#draw();
    });
    const maySecret = suggest(addition.name, addition.value).secret;
    return h('li', { 'data-testid': `env-new-${addition.name}` }, h('b', { class: 'mono' }, visible(addition.name)), box('Secret', 'secret', maySecret), box('Broker only', 'brokered', addition.secret), drop);
  }
}
