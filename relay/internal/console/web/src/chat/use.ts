// Draws what a tool is to do.

import { h } from '../ui/dom.ts';
import { plain } from './markdown.ts';
import type { Line, Use } from './tools.ts';

// useParts shows what a tool is to do.
export function useParts(use: Use): Node[] {
  const parts: Node[] = [];
  if (use.command !== undefined) parts.push(h('pre', { class: 'code', tabindex: '0', 'aria-label': 'Command' }, plain(use.command)));
  if (use.change !== undefined) parts.push(change(use.change));
  if (use.rest !== undefined) parts.push(h('pre', { class: 'code', tabindex: '0', 'aria-label': 'Input' }, plain(use.rest)));
  return parts;
}

const words = { '+': 'added: ', '-': 'removed: ', ' ': '' };

function change(lines: Line[]): HTMLElement {
  return h('pre', { class: 'code change', tabindex: '0', 'aria-label': 'Change' }, ...lines.map(({ sign, text }) =>
    h('span', { 'data-sign': sign }, h('span', { class: 'hidden-label' }, words[sign]), `${sign} ${plain(text)}\n`)));
}
