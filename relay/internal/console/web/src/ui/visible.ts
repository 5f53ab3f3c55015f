// Text that comes from a sandbox, for people to read: what would be invisible,
// or turn the direction of what follows, is shown as what it is. Pure.

// Controls, format characters (bidi and zero width among them), line and
// paragraph separators, lone surrogates, private use and unassigned ones, and
// spaces that look like others.
const unseen = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}|[\u115f\u1160\u3164\uffa0\u2800\ufe00-\ufe0f\u034f\u17b4\u17b5]/gu;

// visible spells such a character as its code point: a U+202E b.
export function visible(text: string): string {
  return text.replace(unseen, (c) => `⟨U+${(c.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}
