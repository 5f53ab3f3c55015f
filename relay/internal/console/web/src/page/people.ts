// Who watches: their faces in the bar, and the list behind them.

import { byId, h, hue, initials, keyed, setAttribute, setHidden, setText } from '../ui/dom.ts';
import type { Model, Person } from './model.ts';

export class People {
  readonly #button = byId('people', HTMLButtonElement);

  // give hands control to somebody.
  constructor(private readonly give: (user: string) => void) {}

  draw({ count, list }: Model['people']): void {
    const button = this.#button;
    setHidden(button, count === 0);
    if (button.hidden) return;
    const names = list.map((p) => (p.you ? `${p.name} (you)` : p.name));
    const more = count > list.length ? ` and ${count - list.length} more` : '';
    setAttribute(button, 'aria-label', `${count === 1 ? '1 person watches' : `${count} people watch`}: ${names.join(', ')}${more}`);
    setAttribute(button, 'title', names.join(', ') + more);
    const faces = list.slice(0, 4);
    keyed(button, [...faces.map((p) => p.id), ...(count > faces.length ? ['+'] : [])], (id) => id,
      (id) => h('span', { class: id === '+' ? 'more' : 'face', 'aria-hidden': 'true' }),
      (element, id) => {
        const person = faces.find((p) => p.id === id);
        setAttribute(element, 'data-letters', person === undefined ? `+${count - faces.length}` : initials(person.name));
        if (person !== undefined) this.#colour(element, person);
      });
    this.#drawList(list, more);
  }

  #drawList(list: Person[], more: string): void {
    const rows = [...list.map((person) => ({ id: person.id, person })), ...(more === '' ? [] : [{ id: '+', person: null }])];
    keyed(byId('people-list'), rows, (row) => row.id,
      ({ person }) => {
        if (person === null) return h('p', { class: 'fine' });
        const give = h('button', { class: 'button small', type: 'button', 'data-testid': `btn-give-${person.id}` }, 'Give control');
        give.addEventListener('click', () => this.give(person.id));
        return h('div', { class: 'person', 'data-testid': `viewer-${person.id}` },
          h('span', { class: 'face', 'aria-hidden': 'true' }), h('span', { class: 'who' }, h('b', {}), h('span', { class: 'fine' })), give);
      },
      (element, { person }) => {
        if (person === null) return setText(element, more.trim());
        const [face, who, give] = [...element.children] as [HTMLElement, HTMLElement, HTMLElement];
        setText(face, initials(person.name));
        this.#colour(face, person);
        setText(who.firstElementChild ?? who, person.you ? `${person.name} (you)` : person.name);
        setText(who.lastElementChild ?? who, person.note);
        setHidden(give, !person.mayReceive);
      });
  }

  #colour(face: HTMLElement, person: Person): void {
    face.style.setProperty('--hue', hue(person.id));
    face.classList.toggle('controls', person.controls);
  }
}
