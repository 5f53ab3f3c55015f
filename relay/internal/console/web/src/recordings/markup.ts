// Makes elements of the constant markup inside asciinema-player, which would
// otherwise set innerHTML: the page's Content-Security-Policy (Trusted Types)
// lets nobody do that. The build puts it in (build/bundle.go). It knows what
// those constants hold and nothing else: elements, quoted or bare attributes,
// text. Nobody calls it with anything that comes from outside the bundle.

const svgNamespace = 'http://www.w3.org/2000/svg';
const token = /<\/([a-zA-Z]+)>|<([a-zA-Z]+)((?:\s+[\w:-]+(?:="[^"]*"|=[^\s"'>\/]+)?)*)\s*(\/?)>|([^<]+)/gy;
const attribute = /([\w:-]+)(?:="([^"]*)"|=([^\s"']+))?/g;

export function markup(html: string, inSVG = false): DocumentFragment {
  const root = document.createDocumentFragment();
  let at: Node = root;
  let end = 0;
  for (const match of html.matchAll(token)) {
    end = match.index + match[0].length;
    const [, closed, opened, attributes, empty, text] = match;
    if (text !== undefined) at.appendChild(document.createTextNode(text));
    if (closed !== undefined) at = at.parentNode ?? root;
    if (opened === undefined) continue;
    const svg = opened === 'svg' || inSVG || (at instanceof SVGElement && at.localName !== 'foreignObject');
    const element = svg ? document.createElementNS(svgNamespace, opened) : document.createElement(opened);
    for (const [, name, quoted, bare] of (attributes ?? '').matchAll(attribute)) {
      if (name !== undefined && name !== 'xmlns') element.setAttribute(name, quoted ?? bare ?? '');
    }
    at.appendChild(element);
    if (empty === '') at = element;
  }
  if (end !== html.length || at !== root) throw new Error('markup that is not understood');
  return root;
}
