// JSON as protocol/jws reads it in Go: one reading or none. JSON.parse alone takes
// the last of two members with one name, and a TextDecoder mends what is broken.
// Pure.

// Deeper than this Go's decoder doesn't go.
const deepest = 10_000;

// The members of an object by their names, each as the text that stands there.
export type Members = ReadonlyMap<string, string>;

// readText decodes UTF-8 without mending it, and keeps a byte order mark, which is
// no JSON.
export function readText(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

// readObject returns the members of a JSON object in which no object, at any
// depth, has two members that are equal or differ only in case.
export function readObject(text: string): Members | undefined {
  return inside(text, '{', true);
}

// readLooseObject is readObject without a look at twins: the last one counts.
export function readLooseObject(text: string): Members | undefined {
  return inside(text, '{', false);
}

// readArray returns the elements of an array, each as the text that stands there.
export function readArray(text: string): string[] | undefined {
  const found = inside(text, '[', false);
  return found === undefined ? undefined : [...found.values()];
}

// stringOf is the string that a text stands for, or undefined.
export function stringOf(text: string | undefined): string | undefined {
  return text?.startsWith('"') === true ? wellFormed(JSON.parse(text) as string) : undefined;
}

// integerOf is the integer of 64 bits that a text stands for, or undefined. What
// no number holds exactly is rounded: nothing so large is ours.
export function integerOf(text: string | undefined): number | undefined {
  if (text === undefined || !/^-?\d+$/.test(text)) return undefined;
  const value = BigInt(text);
  return BigInt.asIntN(64, value) === value ? Number(value) + 0 : undefined;
}

// wellFormed puts the replacement character for half a surrogate pair, as Go does.
const wellFormed = (text: string): string => text.replace(/\p{Surrogate}/gu, '\ufffd');

// foldName is one name for all names that differ only in case.
export function foldName(name: string): string {
  if (/^[\0-\x7f]*$/.test(name)) return name.toLowerCase();
  return Array.from(name, fold).join('');
}

// fold is the lower case of a character's upper case, where Unicode's simple
// folding takes both for the same.
function fold(character: string): string {
  const same = (other: string): boolean => [...other].length === 1 && new RegExp(`^\\u{${(character.codePointAt(0) ?? 0).toString(16)}}$`, 'iu').test(other);
  const upper = character.toUpperCase();
  const lower = (same(upper) ? upper : character).toLowerCase();
  return same(lower) ? lower : same(upper) ? upper : character;
}

interface Scope {
  names: Set<string> | null; // of an object; null for an array
  wantName: boolean;
}

// inside walks through a JSON text that begins with bracket, and returns what lies
// in its outermost pair: by name, or by number.
function inside(text: string, bracket: '{' | '[', distinct: boolean): Members | undefined {
  const begins = text.search(/[^ \t\r\n]/);
  if (text[begins] !== bracket || !valid(text)) return undefined;
  const found = new Map<string, string>();
  const open: Scope[] = [];
  let name = '';
  let from = 0; // where the value of name begins
  const keep = (to: number): void => {
    const value = text.slice(from, to).trim();
    if (value !== '') found.set(bracket === '{' ? name : String(found.size), value);
    from = to + 1;
  };
  for (let i = begins; i < text.length; i++) {
    const here = open.at(-1);
    switch (text[i]) {
      case '"': {
        const end = closing(text, i);
        if (here?.wantName === true && here.names !== null) {
          const member = wellFormed(JSON.parse(text.slice(i, end + 1)) as string);
          const folded = foldName(member);
          if (distinct && here.names.has(folded)) return undefined;
          here.names.add(folded);
          here.wantName = false;
          if (open.length === 1) name = member;
        }
        i = end;
        break;
      }
      case ':':
        if (open.length === 1) from = i + 1;
        break;
      case ',':
        if (open.length === 1) keep(i);
        if (here !== undefined) here.wantName = here.names !== null;
        break;
      case '{':
      case '[':
        open.push({ names: text[i] === '{' ? new Set() : null, wantName: text[i] === '{' });
        if (open.length > deepest) return undefined;
        if (open.length === 1) from = i + 1;
        break;
      case '}':
      case ']':
        if (open.length === 1) keep(i);
        open.pop();
        break;
      default:
    }
  }
  return found;
}

function valid(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

// closing is where the string ends that begins at from.
function closing(text: string, from: number): number {
  let i = from + 1;
  while (text[i] !== '"') i += text[i] === '\\' ? 2 : 1;
  return i;
}
