// Copying and pasting: what to ask before a paste, and writing to the
// clipboard.

const previewLines = 5;
const previewColumns = 72;

export interface PasteQuestion {
  title: string;
  preview: string;
}

// question says what to ask before text is pasted into a program that doesn't
// tell pastes from typing: there, each line runs at once. null: nothing.
export function question(text: string, bracketed: boolean): PasteQuestion | null {
  const lines = text.split(/\r\n|\r|\n/);
  if (bracketed || lines.length < 2) return null;
  const count = lines.at(-1) === '' ? lines.length - 1 : lines.length;
  const shown = lines.slice(0, Math.min(count, previewLines)).map((line) => printable(line));
  if (count > previewLines) shown.push(`… and ${count - previewLines} more`);
  return { title: count === 1 ? 'Paste a line and run it?' : `Paste ${count} lines?`, preview: shown.join('\n') };
}

// printable shows control characters as pictures of themselves.
function printable(line: string): string {
  const all = Array.from(line);
  const seen = all.slice(0, previewColumns).map((c) => {
    const code = c.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? '\u2421' : c;
  });
  return seen.join('') + (all.length > previewColumns ? '…' : '');
}

// copy puts text on the clipboard and says whether the browser let it.
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
