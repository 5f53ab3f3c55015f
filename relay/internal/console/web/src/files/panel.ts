// The panel of the sandbox's files: it lists folders as they are opened, follows
// what changes, and brings files in and out.

import { ApiError, Follow, type ServerEvent, type Session } from '@fairlead/core';
import { ask, hint } from '../ui/ask.ts';
import { byId, setHidden, setText } from '../ui/dom.ts';
import type { Side, SidePanel } from '../ui/side.ts';
import { visible } from '../ui/visible.ts';
import { FilesAPI } from './api.ts';
import { openSink, saveArchive, saveFile, saveName } from './download.ts';
import { dropped, hasFiles } from './drop.ts';
import { Lister } from './lister.ts';
import { show, Transfer } from './transfers.ts';
import { join, nameOf, nameProblem, parentOf, Tree, within, type Entry } from './tree.ts';
import { foldersOf, outage, pause, Upload, type Batch, type Outcome } from './upload.ts';
import { FilesView, note } from './view.ts';
import { counted, problem, some } from './words.ts';

// Where not every folder can be watched, what is shown is read again so often.
const rereadMs = 10_000;
// A folder that an outage kept from being read is tried again so often.
const retryMs = 2_000;

export class Files implements SidePanel {
  readonly #panel = byId('files');
  readonly #form = byId('files-form', HTMLFormElement);
  readonly #name = byId('files-name', HTMLInputElement);
  readonly #tree = new Tree();
  readonly #api: FilesAPI;
  readonly #view: FilesView;
  readonly #lister = new Lister((folder) => this.#list(folder));
  #follow: Follow | undefined;
  #reread: number | undefined;
  #commit: ((name: string) => Promise<void>) | undefined;
  #drawing = false;

  constructor(session: Session, side: Side, private readonly mayWrite: boolean) {
    this.#api = new FilesAPI(session);
    this.#view = new FilesView({
      toggle: (folder, open) => this.#toggle(folder, open),
      enter: (folder) => this.#enter(folder),
      more: (folder) => {
        this.#tree.more(folder);
        this.#draw();
      },
      download: (entry, zip) => void this.#download(entry, zip),
      rename: (entry) => this.#rename(entry),
      remove: (entry) => void this.#remove(entry),
      move: (path, folder) => void this.#move(path, join(folder, nameOf(path))),
      drop: (folder, data) => void this.#drop(folder, dropped(data)),
      chosen: () => this.#draw(),
    }, mayWrite);
    this.#tree.enter('/');
    this.#wire();
    side.add('files', this);
  }

  #wire(): void {
    const press = (id: string, run: () => void) => byId(id, HTMLButtonElement).addEventListener('click', run);
    press('files-up', () => this.#up());
    byId('files-archive', HTMLButtonElement).addEventListener('click', (event) => void this.#download(this.#rootEntry(), event.shiftKey));
    press('files-new', () => this.#newFolder());
    press('files-form-cancel', () => this.#endForm(true));
    const input = byId('files-input', HTMLInputElement);
    press('files-upload', () => input.click());
    input.addEventListener('change', () => {
      const files = [...(input.files ?? [])].map((file) => ({ path: file.name, file }));
      input.value = ''; // the same file may be chosen again
      if (files.length > 0) void this.#drop(this.#view.folder, Promise.resolve(foldersOf(files)));
    });
    for (const id of ['files-new', 'files-upload', 'files-hint']) setHidden(byId(id), !this.mayWrite);
    this.#form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#submit();
    });
    this.#panel.addEventListener('keydown', (event) => this.#key(event));
    // A file that misses the panel must not take the page's place.
    for (const name of ['dragover', 'drop'] as const) {
      document.addEventListener(name, (event) => {
        if (event.defaultPrevented || !hasFiles(event.dataTransfer)) return;
        event.preventDefault();
        if (event.dataTransfer !== null) event.dataTransfer.dropEffect = 'none';
      });
    }
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden && !this.#panel.hidden) this.#again();
    });
  }

  #key(event: KeyboardEvent): void {
    if (event.key === 'Escape') {
      if (this.#form.hidden) return; // the panel closes
      this.#endForm(true);
    } else if (event.key === 'ArrowUp' && event.altKey) this.#up();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  opened(): void {
    this.#again();
    this.#follow = new Follow({
      open: (_, signal, freshGrant) => this.#api.watch(signal, freshGrant),
      event: (event) => this.#event(event),
      connected: (connected) => note(connected ? '' : 'Not connected: this may have changed.'),
      over: (error) => {
        note(`Changes are not followed: ${problem(error)}`);
        if (![401, 403].includes(error.status)) this.#poll(true);
      },
    });
    this.#follow.start();
    this.#view.focus();
  }

  closed(): void {
    this.#follow?.stop();
    this.#poll(false);
    this.#endForm(false);
    note('');
  }

  // event: what was missed before the watch began is made up for by a list.
  #event({ name, data }: ServerEvent): void {
    if (name === 'changed') {
      const { path } = JSON.parse(data) as { path: string };
      const folder = this.#tree.stale(path);
      if (folder !== undefined) this.#want(folder);
    } else if (name === 'ready') {
      const { partial } = JSON.parse(data) as { partial?: boolean };
      this.#poll(Boolean(partial));
      this.#again();
    } else if (name === 'overflow') this.#again();
  }

  // poll: not all changes are reported.
  #poll(on: boolean): void {
    clearInterval(this.#reread);
    if (on) this.#reread = window.setInterval(() => document.hidden || this.#again(), rereadMs);
  }

  // again lists everything that is shown.
  #again(): void {
    for (const folder of this.#tree.reread()) this.#lister.want(folder);
    this.#draw();
  }

  // want lists a folder that changed: when it is shown, and else when it is
  // opened.
  #want(folder: string): void {
    if (this.#tree.visible().includes(folder)) this.#lister.want(folder);
    else this.#tree.forgetContent(folder);
  }

  async #list(folder: string): Promise<void> {
    try {
      this.#tree.list(folder, await this.#api.list(folder));
    } catch (error) {
      // A folder that is gone is dropped by the list of the one above.
      if (error instanceof ApiError && error.status === 404 && folder !== '/') this.#lister.want(parentOf(folder));
      this.#failed(folder, error);
    }
    this.#draw();
  }

  // failed: what is known of the folder stays, and is made good after an outage.
  #failed(folder: string, error: unknown): void {
    const passing = outage(error);
    if (!passing || this.#tree.missing().includes(folder)) this.#tree.fail(folder, problem(error));
    if (passing) setTimeout(() => !this.#panel.hidden && this.#want(folder), retryMs);
  }

  // draw draws once for all that happens before the next frame.
  #draw(): void {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#drawNow();
    });
  }

  #drawNow(): void {
    const { root } = this.#tree;
    for (const folder of this.#tree.missing()) this.#lister.need(folder);
    this.#view.draw(root, this.#tree.rows());
    setText('files-path', root === '/' ? 'Workspace' : visible(root));
    byId('files-path').title = visible(root);
    byId('files-up', HTMLButtonElement).disabled = root === '/';
    const folder = this.#view.folder;
    setText('files-hint', `Drop files here, or upload to ${folder === '/' ? 'the workspace' : visible(folder)}`);
  }

  #toggle(folder: string, open: boolean): void {
    this.#tree.toggle(folder, open);
    this.#draw();
  }

  #enter(folder: string): void {
    this.#tree.enter(folder);
    this.#drawNow();
    this.#view.focus();
  }

  #up(): void {
    const from = this.#tree.root;
    if (from === '/') return;
    this.#tree.toggle(from, true);
    this.#tree.enter(parentOf(from));
    this.#drawNow();
    this.#view.choose(from);
    this.#view.focus();
  }

  #rootEntry(): Entry {
    const path = this.#tree.root;
    return { name: nameOf(path), path, type: 'dir', size: 0, modified: 0, target: '', etag: '' };
  }

  #newFolder(): void {
    const folder = this.#view.folder;
    this.#ask(`New folder in ${folder === '/' ? 'the workspace' : visible(folder)}`, '', 'Create', async (name) => {
      const path = join(folder, name);
      if ((await this.#api.there(path)) !== undefined) throw new Error('There is something of that name already.');
      await this.#api.mkdir(path);
      this.#tree.toggle(folder, true);
      await this.#changed(path, folder);
    });
  }

  #rename(entry: Entry): void {
    const folder = parentOf(entry.path);
    this.#ask(`Rename ${visible(entry.name)}`, entry.name, 'Rename', async (name) => {
      if (name === entry.name) return;
      const path = join(folder, name);
      await this.#api.move(entry.path, path);
      await this.#changed(path, folder);
    });
    const dot = entry.type === 'dir' ? -1 : entry.name.lastIndexOf('.');
    this.#name.setSelectionRange(0, dot > 0 ? dot : entry.name.length);
  }

  // ask asks for a name in a line above the tree.
  #ask(label: string, value: string, yes: string, commit: (name: string) => Promise<void>): void {
    setText('files-form-label', label);
    setText('files-form-ok', yes);
    this.#complain('');
    this.#name.value = value;
    this.#commit = commit;
    setHidden(this.#form, false);
    this.#name.focus();
  }

  async #submit(): Promise<void> {
    const name = this.#name.value;
    const bad = nameProblem(name);
    if (bad !== '') return this.#complain(bad);
    const commit = this.#commit;
    if (commit === undefined) return;
    this.#commit = undefined; // until there is an answer
    try {
      await commit(name);
      if (this.#commit === undefined) this.#endForm(true);
    } catch (error) {
      this.#complain(problem(error));
      this.#commit ??= commit;
    }
  }

  #complain(text: string): void {
    const element = byId('files-form-problem');
    setText(element, text);
    setHidden(element, text === '');
  }

  #endForm(focus: boolean): void {
    this.#commit = undefined;
    if (this.#form.hidden) return;
    setHidden(this.#form, true);
    if (focus) this.#view.focus();
  }

  // changed shows what the person has just made, without waiting for the watch.
  async #changed(path: string, ...folders: string[]): Promise<void> {
    await Promise.all(folders.map((folder) => this.#list(folder)));
    this.#drawNow();
    this.#view.choose(path);
  }

  async #move(from: string, to: string): Promise<void> {
    try {
      await this.#api.move(from, to);
      await this.#changed(to, parentOf(from), parentOf(to));
    } catch (error) {
      hint(`${visible(nameOf(from))} was not moved. ${problem(error)}`);
    }
  }

  async #remove(entry: Entry): Promise<void> {
    const name = visible(entry.name);
    const text = entry.type === 'dir' ? 'With everything in it. This can’t be undone.' : 'This can’t be undone.';
    if (!(await ask(`Delete “${name}”?`, text, 'Delete'))) return;
    try {
      await this.#api.remove(entry.path);
    } catch (error) {
      hint(`${name} was not deleted. ${problem(error)}`);
    }
    await this.#list(parentOf(entry.path));
    this.#drawNow();
    this.#view.focus();
  }

  async #download(entry: Entry, zip: boolean): Promise<void> {
    const archive = entry.type === 'dir';
    const format = zip ? 'zip' : 'tar.gz';
    const name = saveName(entry.path, archive ? `.${format}` : '');
    let transfer: Transfer | undefined;
    let masked = false;
    try {
      const sink = await openSink(entry, name, archive);
      if (sink === undefined) return;
      transfer = new Transfer('download', visible(name));
      show(transfer);
      const { signal } = transfer;
      const hooks = {
        progress: (bytes: number) => transfer?.progress(bytes, archive || entry.type === 'symlink' ? 0 : entry.size),
        waiting: (waiting: boolean) => transfer?.waiting(waiting),
      };
      try {
        masked = await (archive ? saveArchive(this.#api, entry, format, sink, hooks, signal) : saveFile(this.#api, entry, sink, hooks, signal));
        await sink.close();
      } catch (error) {
        void sink.abort().catch(() => {});
        throw error;
      }
      transfer.succeed(`Downloaded ${visible(name)}${masked ? ', its secrets masked' : ''}`);
    } catch (error) {
      if (transfer?.signal.aborted) transfer.cancelled();
      else if (transfer !== undefined) transfer.fail(`${visible(name)} was not downloaded`, problem(error));
      else hint(problem(error));
    }
  }

  // drop uploads a batch, once it is known what is in it.
  async #drop(folder: string, dropped: Promise<Batch>): Promise<void> {
    let batch: Batch;
    try {
      batch = await dropped;
    } catch (error) {
      return hint(problem(error));
    }
    const { files, folders } = batch;
    if (files.length + folders.length === 0) return;
    const [only] = files;
    const what = files.length === 1 && only !== undefined ? visible(only.path) : counted(files.length, 'file');
    const transfer = new Transfer('upload', what);
    show(transfer);
    try {
      const outcome = await new Upload(this.#api, folder, batch, {
        replace: (paths) => ask(`Replace ${paths.length === 1 ? 'a file' : counted(paths.length, 'file')}?`, `There ${paths.length === 1 ? 'is one' : 'are some'} of that name already:\n${some(paths)}`, 'Replace'),
        progress: (done, total, name) => transfer.progress(done, total, files.length > 1 ? name : ''),
        waiting: (waiting) => transfer.waiting(waiting),
        wait: pause,
      }, transfer.signal).run();
      this.#report(transfer, outcome, what, folder);
    } catch (error) {
      if (transfer.signal.aborted) transfer.cancelled();
      else transfer.fail(`${what} could not be uploaded`, problem(error));
    }
    if (within(folder, this.#tree.root) && folder !== this.#tree.root) this.#tree.toggle(folder, true);
    this.#again();
  }

  #report(transfer: Transfer, { uploaded, skipped, failed }: Outcome, what: string, folder: string): void {
    const where = folder === '/' ? 'the workspace' : visible(folder);
    const [first] = failed;
    if (first !== undefined) {
      const more = failed.length > 1 ? ` And ${counted(failed.length - 1, 'other')}.` : '';
      transfer.fail(`${counted(failed.length, 'file')} could not be uploaded`, `${visible(first.path)}: ${problem(first.error)}${more}`);
    } else if (skipped > 0 && uploaded === 0) transfer.succeed('Nothing was replaced');
    else transfer.succeed(`Uploaded ${skipped > 0 ? counted(uploaded, 'file') : what} to ${where}${skipped > 0 ? `; ${skipped} left as they were` : ''}`);
  }
}
