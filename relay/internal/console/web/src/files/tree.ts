// The tree of the workspace as it is known: which folders were read, which are
// open, and the rows to draw. Pure.

export type FileKind = 'file' | 'dir' | 'symlink' | 'other';

export interface Entry {
  name: string;
  path: string; // "/…"
  type: FileKind;
  size: number; // bytes
  modified: number; // ms since 1970, 0 when unknown
  target: string; // of a symlink
  etag: string; // of a regular file
}

// A Row is an entry, or a note in place of some.
export type Row =
  | { kind: 'entry'; key: string; depth: number; entry: Entry; open: boolean; at: number; of: number }
  | { kind: 'note'; key: string; depth: number; text: string; bad: boolean }
  | { kind: 'more'; key: string; depth: number; folder: string; left: number };

interface Folder {
  entries: Entry[] | undefined; // undefined until it was read
  problem: string; // why it wasn't
  shown: number; // how many entries are drawn
}

// Entries of one folder that are drawn, and are added by each press of "more".
export const pageSize = 500;

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });

// order puts folders first, and numbers in names as people count.
export function order(a: Entry, b: Entry): number {
  const folders = Number(b.type === 'dir') - Number(a.type === 'dir');
  return folders || collator.compare(a.name, b.name) || (a.name < b.name ? -1 : Number(a.name > b.name));
}

export const parentOf = (path: string): string => path.slice(0, path.lastIndexOf('/')) || '/';
export const nameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);
export const join = (folder: string, name: string): string => `${folder === '/' ? '' : folder}/${name}`;

// within reports whether path is folder or something in it, at any depth.
export const within = (path: string, folder: string): boolean => folder === '/' || path === folder || path.startsWith(`${folder}/`);

// nameProblem says why a name can't be given to a file, '' if it can.
export function nameProblem(name: string): string {
  if (name === '') return 'A name is missing.';
  if (name === '.' || name === '..' || name.includes('/') || name.includes('\0')) return 'A name can’t hold a slash, nor be one or two dots.';
  if (new TextEncoder().encode(name).length > 255) return 'The name is too long.';
  return '';
}

export class Tree {
  #root = '/';
  readonly #folders = new Map<string, Folder>();
  readonly #open = new Set<string>();

  get root(): string {
    return this.#root;
  }

  // enter makes folder the one that everything shown is in.
  enter(folder: string): void {
    this.#root = folder;
    this.#folder(folder);
  }

  toggle(folder: string, open: boolean): void {
    if (!open) this.#open.delete(folder);
    else {
      this.#open.add(folder);
      this.#folder(folder);
    }
  }

  isOpen(folder: string): boolean {
    return folder === this.#root || this.#open.has(folder);
  }

  // visible are the folders whose content is drawn.
  visible(): string[] {
    return [...this.#folders.keys()].filter((folder) => this.#drawn(folder));
  }

  // missing are those of them that were never read.
  missing(): string[] {
    return this.visible().filter((folder) => this.#folders.get(folder)?.entries === undefined);
  }

  // list notes what is in a folder. What is no folder any more is forgotten.
  list(folder: string, entries: Entry[]): void {
    const known = this.#folder(folder);
    const folders = new Set(entries.filter((e) => e.type === 'dir').map((e) => e.path));
    for (const { path, type } of known.entries ?? []) {
      if (type === 'dir' && !folders.has(path)) this.forget(path);
    }
    known.entries = [...entries].sort(order);
    known.problem = '';
  }

  // fail notes why a folder can't be read.
  fail(folder: string, problem: string): void {
    const known = this.#folder(folder);
    known.problem = problem;
    known.entries ??= [];
  }

  // forget drops what is known of a folder and of all in it. The root goes up
  // when it is gone itself.
  forget(folder: string): void {
    if (folder === '/') return;
    for (const path of [...this.#folders.keys()]) {
      if (within(path, folder)) this.#folders.delete(path);
    }
    for (const path of [...this.#open]) {
      if (within(path, folder)) this.#open.delete(path);
    }
    if (within(this.#root, folder)) this.enter(parentOf(folder));
  }

  // forgetContent has a folder that isn't drawn read again when it is.
  forgetContent(folder: string): void {
    this.#folders.delete(folder);
  }

  more(folder: string): void {
    this.#folder(folder).shown += pageSize;
  }

  find(path: string): Entry | undefined {
    return this.#folders.get(parentOf(path))?.entries?.find((e) => e.path === path);
  }

  // stale returns the folder to list again since path changed, if it was read.
  stale(path: string): string | undefined {
    const folder = parentOf(path);
    return this.#folders.get(folder)?.entries === undefined ? undefined : folder;
  }

  // reread returns what to list again after a gap in the changes: the folders
  // that are drawn. Of the others the content is forgotten.
  reread(): string[] {
    for (const folder of [...this.#folders.keys()]) {
      if (!this.#drawn(folder)) this.#folders.delete(folder);
    }
    return this.visible();
  }

  rows(): Row[] {
    const rows: Row[] = [];
    this.#rowsOf(this.#root, 0, rows);
    return rows;
  }

  #rowsOf(path: string, depth: number, rows: Row[]): void {
    const folder = this.#folders.get(path);
    const note = (text: string, bad: boolean) => rows.push({ kind: 'note', key: `note ${path}`, depth, text, bad });
    if (folder === undefined || (folder.entries === undefined && folder.problem === '')) return void note('Reading…', false);
    const { entries = [], problem, shown } = folder;
    if (problem !== '') note(problem, true);
    else if (entries.length === 0) note('Empty', false);
    for (const [at, entry] of entries.slice(0, shown).entries()) {
      const open = entry.type === 'dir' && this.#open.has(entry.path);
      rows.push({ kind: 'entry', key: entry.path, depth, entry, open, at: at + 1, of: entries.length });
      if (open) this.#rowsOf(entry.path, depth + 1, rows);
    }
    if (entries.length > shown) rows.push({ kind: 'more', key: `more ${path}`, depth, folder: path, left: entries.length - shown });
  }

  #drawn(folder: string): boolean {
    for (let path = folder; path !== this.#root; path = parentOf(path)) {
      if (path === '/' || !this.#open.has(path)) return false;
    }
    return true;
  }

  #folder(path: string): Folder {
    let folder = this.#folders.get(path);
    if (folder === undefined) this.#folders.set(path, (folder = { entries: undefined, problem: '', shown: pageSize }));
    return folder;
  }
}
