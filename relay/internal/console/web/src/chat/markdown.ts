// Draws Markdown that a coding agent has written. Its HTML is shown as text, its
// images as links, and a link leads only to http and https: what it says may be
// somebody else's.

import { lexer, type Token, type Tokens } from 'marked';
import { h } from '../ui/dom.ts';
import { visible } from '../ui/visible.ts';

// A longer text is shown as it is.
const mostChars = 200_000;

// markdown returns what text says, as elements.
export function markdown(text: string): Node[] {
  if (text.length > mostChars) return [h('pre', { class: 'plain-text' }, plain(text))];
  return blocks(lexer(text, { gfm: true }), { level: topLevel - 1 });
}

// plain keeps line breaks and tabs, and shows everything else that is invisible.
export function plain(text: string): string {
  return text.split(/([\n\t])/).map((part) => (part === '\n' || part === '\t' ? part : visible(part))).join('');
}

// An Outline is the level of the last heading. The panel's own are above, and none
// is left out on the way down: whoever listens to the page goes by them.
interface Outline {
  level: number;
}

const topLevel = 3;

const blocks = (tokens: Token[], outline: Outline): Node[] => tokens.flatMap((token) => block(token, outline));

function block(token: Token, outline: Outline): Node[] {
  switch (token.type) {
    case 'space':
    case 'def':
      return [];
    case 'heading':
      outline.level = Math.min((token as Tokens.Heading).depth + topLevel - 1, outline.level + 1, 6);
      return [h('p', { class: 'heading', role: 'heading', 'aria-level': String(outline.level) }, ...inlines(token))];
    case 'paragraph':
      return [h('p', {}, ...inlines(token))];
    case 'code':
      return [code(token as Tokens.Code)];
    case 'blockquote':
      return [h('blockquote', {}, ...blocks((token as Tokens.Blockquote).tokens, outline))];
    case 'list':
      return [list(token as Tokens.List, outline)];
    case 'table':
      return [table(token as Tokens.Table)];
    case 'hr':
      return [h('hr')];
    case 'text':
      return [h('p', {}, ...inlines(token))];
    default: // HTML, and whatever a later version knows
      return [h('p', {}, plain(token.raw))];
  }
}

function code({ text, lang }: Tokens.Code): HTMLElement {
  const name = (lang ?? '').split(/\s/)[0] ?? '';
  return h('pre', { class: 'code', tabindex: '0', 'aria-label': name === '' ? 'Code' : `Code, ${visible(name)}` }, h('code', {}, plain(text)));
}

function list({ ordered, start, items }: Tokens.List, outline: Outline): HTMLElement {
  const element = ordered ? h('ol', { start: String(start === '' ? 1 : start) }) : h('ul');
  for (const item of items) {
    const box = item.task ? [h('input', { type: 'checkbox', disabled: '', ...(item.checked === true ? { checked: '' } : {}) }), ' '] : [];
    element.append(h('li', {}, ...box, ...item.tokens.flatMap((t) => (t.type === 'text' ? inlines(t) : block(t, outline)))));
  }
  return element;
}

function table({ header, rows }: Tokens.Table): HTMLElement {
  const row = (cells: Tokens.TableCell[], tag: 'th' | 'td') => h('tr', {}, ...cells.map((cell) => h(tag, {}, ...cell.tokens.flatMap(inline))));
  return h('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table' }, h('table', {}, h('thead', {}, row(header, 'th')), h('tbody', {}, ...rows.map((cells) => row(cells, 'td')))));
}

function inlines(token: Token): Node[] {
  const { tokens } = token as { tokens?: Token[] };
  return tokens === undefined ? [text(token)] : tokens.flatMap(inline);
}

function inline(token: Token): Node[] {
  switch (token.type) {
    case 'strong':
      return [h('strong', {}, ...inlines(token))];
    case 'em':
      return [h('em', {}, ...inlines(token))];
    case 'del':
      return [h('s', {}, ...inlines(token))];
    case 'codespan':
      return [h('code', {}, plain((token as Tokens.Codespan).text))];
    case 'br':
      return [h('br')];
    case 'link':
      return link((token as Tokens.Link).href, inlines(token));
    case 'image':
      return link((token as Tokens.Image).href, [document.createTextNode(`Image: ${plain((token as Tokens.Image).text)}`)]);
    case 'text':
    case 'escape':
      return (token as Tokens.Text).tokens === undefined ? [text(token)] : inlines(token);
    default:
      return [document.createTextNode(plain(token.raw))];
  }
}

const text = (token: Token): Node => document.createTextNode(plain((token as { text?: string }).text ?? token.raw));

// link leads somewhere only by http and https.
function link(href: string, content: Node[]): Node[] {
  let url: URL | undefined;
  try {
    url = new URL(href);
  } catch {
    return content; // a path of the workspace, say
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return content;
  return [h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer', title: visible(url.href) }, ...content)];
}
