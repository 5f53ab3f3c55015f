// Draws the tree of files, and passes on what the person does with it: by mouse,
// keyboard and touch.

import { byId, h, icon, keyed, setAttribute, setHidden, setText } from '../ui/dom.ts';
import { size } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';
import { hasFiles } from './drop.ts';
import { parentOf, within, type Entry, type Row } from './tree.ts';
import { age } from './words.ts';

export interface TreeActions {
  toggle(folder: string, open: boolean): void;
  enter(folder: string): void;
  more(folder: string): void;
  download(entry: Entry, zip: boolean): void;
  rename(entry: Entry): void;
  remove(entry: Entry): void;
  move(path: string, folder: string): void;
  drop(folder: string, data: DataTransfer): void;
  chosen(): void;
}

// What is dragged within the tree.
const pathType = 'application/x-fairlead-path';
const openAfterMs = 700; // a closed folder under something dragged

export class FilesView {
  readonly #tree = byId('files-tree');
  readonly #area = byId('files-drop');
  readonly #entries = new Map<string, { entry: Entry; open: boolean; depth: number }>();
  #active = '';
  #root = '/';
  #over = ''; // folder that something is dragged over
  #opening: number | undefined;
  #typed = { text: '', at: 0 };

  constructor(
    private readonly actions: TreeActions,
    private readonly mayWrite: boolean,
  ) {
    this.#tree.addEventListener('keydown', (event) => this.#key(event));
    this.#tree.addEventListener('click', (event) => this.#click(event));
    this.#tree.addEventListener('dblclick', (event) => {
      const found = this.#at(event.target);
      if (found?.entry.type === 'dir' && !inButton(event.target)) this.actions.enter(found.entry.path);
    });
    this.#tree.addEventListener('focusin', (event) => {
      const found = this.#at(event.target);
      if (found !== undefined) this.#choose(found.entry.path);
    });
    if (mayWrite) this.#dragging();
  }

  // chosen is the entry that the person was at last.
  get chosen(): Entry | undefined {
    return this.#entries.get(this.#active)?.entry;
  }

  // folder is where something new goes: into the chosen folder, or next to the
  // chosen file.
  get folder(): string {
    return this.#folderOf(this.#entries.get(this.#active)?.entry);
  }

  focus(): void {
    (this.#rowOf(this.#active) ?? this.#tree.querySelector<HTMLElement>('.file') ?? this.#area).focus();
  }

  choose(path: string): void {
    this.#choose(path);
    this.#rowOf(path)?.scrollIntoView({ block: 'nearest' });
  }

  draw(root: string, rows: Row[]): void {
    const focused = document.activeElement;
    const hadFocus = focused instanceof HTMLElement && this.#tree.contains(focused);
    const place = hadFocus ? [...this.#tree.children].findIndex((row) => row.contains(focused)) : -1;
    const waited = this.#entries.size === 0 && focused === this.#area; // for something to focus
    this.#root = root;
    this.#entries.clear();
    for (const row of rows) {
      if (row.kind === 'entry') this.#entries.set(row.entry.path, row);
    }
    if (!this.#entries.has(this.#active)) this.#active = '';
    const first = rows.find((row) => row.kind === 'entry')?.key ?? '';
    keyed(this.#tree, rows, (row) => `${row.kind} ${row.kind === 'entry' ? row.entry.type : ''} ${row.key}`, (row) => this.#make(row), (element, row) => this.#draw(element, row, first));
    setAttribute(this.#tree, 'role', rows.some((row) => row.kind === 'entry') ? 'tree' : 'group'); // a tree has items
    if (hadFocus && !this.#tree.contains(document.activeElement)) this.#refocus(place);
    else if (waited && first !== '') this.focus();
  }

  // refocus: the row that had the focus is gone.
  #refocus(place: number): void {
    const rows = [...this.#tree.querySelectorAll<HTMLElement>('.file')];
    (rows[Math.min(place, rows.length - 1)] ?? this.#area).focus();
  }

  #make(row: Row): HTMLElement {
    if (row.kind === 'note') return h('p', { class: 'file-note', role: 'none' });
    if (row.kind === 'more') {
      const button = h('button', { class: 'button small', type: 'button' });
      button.addEventListener('click', () => this.actions.more(row.folder));
      return h('div', { class: 'file-more', role: 'none' }, button);
    }
    const { path, type } = row.entry;
    const acts = h('span', { class: 'file-acts' });
    const act = (name: string, label: string, symbol: string) => acts.append(
      h('button', { class: 'plain', type: 'button', 'data-act': name, 'data-testid': `btn-${name}-${path}`, title: label, 'aria-label': `${label}: ${visible(row.entry.name)}` }, icon(symbol)));
    if (type === 'dir') act('enter', 'Show this folder only', 'enter');
    if (type !== 'other') act('download', type === 'dir' ? 'Download as .tar.gz (with Shift as .zip)' : 'Download', 'download');
    if (this.mayWrite) {
      act('rename', 'Rename (F2)', 'rename');
      act('delete', 'Delete (Del)', 'trash');
    }
    const twist = h('span', { class: 'file-icon' }, icon(type === 'dir' ? 'right' : type === 'symlink' ? 'link' : 'file'));
    return h('div', { class: 'file', role: 'treeitem', 'data-path': path, 'data-type': type, 'data-testid': `file-${path}`, ...(this.mayWrite ? { draggable: 'true' } : {}) },
      twist, h('span', { class: 'file-name' }), h('span', { class: 'file-size' }), h('span', { class: 'file-age' }), acts);
  }

  #draw(element: HTMLElement, row: Row, first: string): void {
    element.style.setProperty('--depth', String(row.depth));
    if (row.kind === 'note') {
      setText(element, row.text);
      element.classList.toggle('bad', row.bad);
      return;
    }
    if (row.kind === 'more') return setText(element.firstElementChild ?? element, `${row.left.toLocaleString('en')} more`);
    const { entry, open, depth, at, of } = row;
    const [, name, bytes, time] = [...element.children] as [Element, Element, Element, Element];
    setText(name, visible(entry.name) + (entry.target === '' ? '' : ` → ${visible(entry.target)}`));
    setAttribute(name, 'title', visible(entry.path));
    setText(bytes, entry.type === 'file' ? size(entry.size) : entry.type === 'other' ? 'special' : '');
    setText(time, age(entry.modified, Date.now()));
    setAttribute(time, 'title', entry.modified === 0 ? '' : new Date(entry.modified).toLocaleString());
    setAttribute(element, 'aria-level', String(depth + 1));
    setAttribute(element, 'aria-posinset', String(at));
    setAttribute(element, 'aria-setsize', String(of));
    setAttribute(element, 'aria-expanded', entry.type === 'dir' ? String(open) : null);
    const active = entry.path === this.#active;
    setAttribute(element, 'aria-selected', String(active));
    setAttribute(element, 'tabindex', active || (this.#active === '' && row.key === first) ? '0' : '-1');
  }

  #choose(path: string): void {
    if (path === this.#active) return;
    this.#active = path;
    for (const row of this.#tree.querySelectorAll<HTMLElement>('.file')) {
      const active = row.dataset.path === path;
      setAttribute(row, 'aria-selected', String(active));
      setAttribute(row, 'tabindex', active ? '0' : '-1');
    }
    this.actions.chosen();
  }

  #click(event: MouseEvent): void {
    const found = this.#at(event.target);
    if (found === undefined || !(event.target instanceof Element)) return;
    const { entry, open } = found;
    const act = event.target.closest('[data-act]')?.getAttribute('data-act');
    if (act === 'enter') this.actions.enter(entry.path);
    else if (act === 'download') this.actions.download(entry, event.shiftKey);
    else if (act === 'rename') this.actions.rename(entry);
    else if (act === 'delete') this.actions.remove(entry);
    else {
      this.#rowOf(entry.path)?.focus();
      if (entry.type === 'dir' && event.detail < 2) this.actions.toggle(entry.path, !open);
    }
  }

  #key(event: KeyboardEvent): void {
    const found = this.#at(event.target);
    if (found === undefined || inButton(event.target)) return;
    if (this.#walk(event, found) || this.#act(event, found) || this.#find(event)) {
      event.preventDefault();
      event.stopPropagation();
    }
  }

  // walk moves the focus.
  #walk(event: KeyboardEvent, { entry, open }: { entry: Entry; open: boolean }): boolean {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const rows = [...this.#tree.querySelectorAll<HTMLElement>('.file')];
    const at = rows.findIndex((row) => row.dataset.path === entry.path);
    switch (event.key) {
      case 'ArrowDown': rows[at + 1]?.focus(); return true;
      case 'ArrowUp': rows[at - 1]?.focus(); return true;
      case 'Home': rows[0]?.focus(); return true;
      case 'End': rows.at(-1)?.focus(); return true;
      case 'ArrowRight':
        if (entry.type === 'dir' && !open) this.actions.toggle(entry.path, true);
        else if (open) rows[at + 1]?.focus();
        return true;
      case 'ArrowLeft':
        if (open) this.actions.toggle(entry.path, false);
        else this.#rowOf(parentOf(entry.path))?.focus();
        return true;
    }
    return false;
  }

  #act(event: KeyboardEvent, { entry, open }: { entry: Entry; open: boolean }): boolean {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    switch (event.key) {
      case 'Enter':
      case ' ':
        if (entry.type === 'dir') this.actions.toggle(entry.path, !open);
        else if (event.key === 'Enter') this.actions.download(entry, false);
        return true;
      case 'F2':
        if (this.mayWrite) this.actions.rename(entry);
        return true;
      case 'Delete':
        if (this.mayWrite) this.actions.remove(entry);
        return true;
      case '*':
        if (entry.type === 'dir') this.actions.enter(entry.path);
        return true;
    }
    return false;
  }

  // find goes to the next entry whose name begins as was typed.
  #find(event: KeyboardEvent): boolean {
    if (event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey) return false;
    const now = performance.now();
    this.#typed = { text: (now - this.#typed.at < 800 ? this.#typed.text : '') + event.key.toLowerCase(), at: now };
    const all = [...this.#entries.values()].map(({ entry }) => entry);
    const from = all.findIndex((entry) => entry.path === this.#active) + (this.#typed.text.length === 1 ? 1 : 0);
    const next = [...all.slice(from), ...all.slice(0, from)].find((entry) => entry.name.toLowerCase().startsWith(this.#typed.text));
    if (next !== undefined) this.#rowOf(next.path)?.focus();
    return true;
  }

  // dragging: files come from outside, entries go to other folders.
  #dragging(): void {
    this.#tree.addEventListener('dragstart', (event) => {
      const found = this.#at(event.target);
      if (found === undefined || event.dataTransfer === null) return;
      event.dataTransfer.setData(pathType, found.entry.path);
      event.dataTransfer.effectAllowed = 'move';
    });
    this.#area.addEventListener('dragover', (event) => {
      const data = event.dataTransfer;
      if (data === null || !(hasFiles(data) || data.types.includes(pathType))) return;
      event.preventDefault();
      data.dropEffect = hasFiles(data) ? 'copy' : 'move';
      this.#hover(this.#target(event.target));
    });
    this.#area.addEventListener('dragleave', (event) => {
      if (!(event.relatedTarget instanceof Node) || !this.#area.contains(event.relatedTarget)) this.#hover('');
    });
    this.#area.addEventListener('dragend', () => this.#hover(''));
    this.#area.addEventListener('drop', (event) => {
      const data = event.dataTransfer;
      const folder = this.#target(event.target);
      this.#hover('');
      if (data === null) return;
      event.preventDefault();
      const path = data.getData(pathType);
      if (path !== '') {
        if (parentOf(path) !== folder && !within(folder, path)) this.actions.move(path, folder);
      } else if (hasFiles(data)) this.actions.drop(folder, data);
    });
  }

  // hover marks the folder that a drop would go to.
  #hover(folder: string): void {
    if (folder === this.#over) return;
    this.#over = folder;
    clearTimeout(this.#opening);
    for (const row of this.#tree.querySelectorAll('.target')) row.classList.remove('target');
    this.#area.classList.toggle('target', folder === this.#root);
    if (folder === '' || folder === this.#root) return;
    this.#rowOf(folder)?.classList.add('target');
    if (this.#entries.get(folder)?.open === false) this.#opening = window.setTimeout(() => this.actions.toggle(folder, true), openAfterMs);
  }

  #target(element: EventTarget | null): string {
    return this.#folderOf(this.#at(element)?.entry);
  }

  #folderOf(entry: Entry | undefined): string {
    if (entry === undefined) return this.#root;
    return entry.type === 'dir' ? entry.path : parentOf(entry.path);
  }

  #at(element: EventTarget | null): { entry: Entry; open: boolean } | undefined {
    const row = element instanceof Element ? element.closest<HTMLElement>('.file') : null;
    return row === null ? undefined : this.#entries.get(row.dataset.path ?? '');
  }

  #rowOf(path: string): HTMLElement | undefined {
    return [...this.#tree.querySelectorAll<HTMLElement>('.file')].find((row) => row.dataset.path === path);
  }
}

const inButton = (target: EventTarget | null): boolean => target instanceof Element && target.closest('button') !== null;

// name says something about the tree as a whole.
export function note(text: string): void {
  setText('files-note', text);
  setHidden('files-note', text === '');
}
