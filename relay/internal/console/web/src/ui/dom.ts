// Small helpers around the DOM. Nothing here, or anywhere in the console,
// makes elements out of strings.

export function byId(id: string): HTMLElement;
export function byId<T extends HTMLElement>(id: string, type: new () => T): T;
export function byId(id: string, type = HTMLElement): HTMLElement {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`index.html has no ${id}`);
  return element;
}

type Attributes = Record<string, string>;

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// An element, or its id.
type Named<T extends Element> = T | string;

const elementOf = <T extends Element>(named: Named<T>): T | HTMLElement => (typeof named === 'string' ? byId(named) : named);

// setText, setHidden and setAttribute leave an element alone that is right
// already: a live region would be read again otherwise.
export function setText(named: Named<Element>, text: string): void {
  const element = elementOf(named);
  if (element.textContent !== text) element.textContent = text;
}

// setNamed is setText for a text that begins with a name, which gives way where
// there is too little room for both.
export function setNamed(named: Named<Element>, name: string, text: string): void {
  const element = elementOf(named);
  const first = element.firstElementChild;
  if (element.textContent === text && (first?.textContent ?? '') === name) return;
  const label = h('span', { class: 'name', title: name }, name);
  element.replaceChildren(...(name === '' ? [text] : [label, text.slice(name.length)]));
}

export function setAttribute(named: Named<Element>, name: string, value: string | null): void {
  const element = elementOf(named);
  if (value === element.getAttribute(name)) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

export function setHidden(named: Named<HTMLElement>, hidden: boolean): void {
  const element = elementOf(named);
  if (element.hidden !== hidden) element.hidden = hidden;
}

// keyed makes the children of parent those of items, in order, and reuses the
// ones it made before, so that focus and hover stay where they are.
export function keyed<T>(parent: HTMLElement, items: T[], key: (item: T) => string, create: (item: T) => HTMLElement, draw: (element: HTMLElement, item: T) => void): void {
  const old = new Map<string, HTMLElement>();
  for (const child of parent.children) {
    if (child instanceof HTMLElement && child.dataset.key !== undefined) old.set(child.dataset.key, child);
  }
  // What is gone goes first: then nothing that stays has to move.
  const wanted = new Set(items.map(key));
  for (const [id, element] of old) if (!wanted.has(id)) element.remove();
  let place: Element | null = parent.firstElementChild;
  for (const item of items) {
    const id = key(item);
    let element = old.get(id);
    if (element === undefined) {
      element = create(item);
      element.dataset.key = id;
    }
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
    draw(element, item);
  }
}

// closeMenu closes the menu of tools, where a phone has opened it.
export function closeMenu(): void {
  const menu = byId('tools');
  if (menu.matches(':popover-open')) menu.hidePopover();
}

// keepFocus has a button leave the focus where it is: with it a phone's keyboard
// would go away.
export const keepFocus = (button: HTMLElement): void => button.addEventListener('pointerdown', (event) => event.preventDefault());

// hue gives every id a colour of its own, the same on every page.
export function hue(id: string): string {
  let sum = 7;
  for (const c of id) sum = (sum * 31 + c.charCodeAt(0)) % 3600;
  return String(Math.round(sum / 10));
}

export function initials(name: string): string {
  const words = name.trim().split(/[\s._-]+/).filter((word) => word !== '');
  const letters = words.length > 1 ? [words[0], words.at(-1)] : [words[0]];
  return letters.map((word) => Array.from(word ?? '?')[0]?.toUpperCase()).join('');
}

// icon draws one of the symbols in index.html.
export function icon(name: string): SVGSVGElement {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}
