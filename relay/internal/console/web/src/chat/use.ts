// Draws what a tool is to do.

import { h } from '../ui/dom.ts';
import { plain } from './markdown.ts';
import type { Line, Use } from './tools.ts';

// useParts shows what a tool is to do.
export function useParts(use: Use): Node[] {
  return use.pieces.map((piece) => ('change' in piece ? change(piece.label, piece.change) : text(piece.label, piece.text)));
}

// text shows a line as it is, and more of them in a box.
function text(label: string, content: string): HTMLElement {
  if (label === 'File' || label.startsWith('What')) return h('p', { class: 'fine' }, `${label}: ${plain(content)}`);
  return h('pre', { class: 'code', tabindex: '0', role: 'group', 'aria-label': label }, plain(content));
}

const words = { '+': 'added: ', '-': 'removed: ', ' ': '' };

function change(label: string, lines: Line[]): HTMLElement {
  return h('pre', { class: 'code change', tabindex: '0', role: 'group', 'aria-label': label }, ...lines.map(({ sign, text: line }) =>
    h('span', { 'data-sign': sign }, h('span', { class: 'hidden-label' }, words[sign]), `${sign} ${plain(line)}\n`)));
}
