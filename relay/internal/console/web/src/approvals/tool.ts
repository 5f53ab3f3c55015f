// What a coding agent's tool is to do, for the person who may allow it: all of
// it, as plain text in which nothing is invisible. Pure.

import { visible } from '../ui/visible.ts';

// A Part is a piece of a tool's input. Its lines are ready to be shown.
export interface Part {
  label: string; // '' where the lines speak for themselves
  lines: Line[];
}

export interface Line {
  sign: '' | '+' | '-';
  text: string;
}

// A ToolView is a tool's use on a card.
export interface ToolView {
  tool: string;
  parts: Part[];
  rules: Rule[]; // what may be remembered; none where each use is a question of its own
  answered: boolean; // a person answers it in the conversation, with more than yes or no
}

// A Rule says which further uses need no question.
export interface Rule {
  entry: string; // as the sandbox takes it
  text: string;
}

type Input = Record<string, unknown>;

const isInput = (value: unknown): value is Input => typeof value === 'object' && value !== null && !Array.isArray(value);

// textLines are the lines of a text. Tabs and ends of lines stay what they are.
export function textLines(text: string, sign: Line['sign'] = ''): Line[] {
  return text.split('\n').map((line) => ({ sign, text: line.split('\t').map(visible).join('\t') }));
}

const part = (label: string, text: string, sign: Line['sign'] = ''): Part => ({ label, lines: textLines(text, sign) });

// A Section is a piece of a tool's input as it was written: a text, or a change of
// one text to another.
export type Section =
  | { kind: 'path' | 'command' | 'why' | 'plan' | 'rest'; text: string }
  | { kind: 'change' | 'content'; before: string; after: string };

// A reader takes text members out of an input; what is left is shown as JSON.
class Reader {
  readonly #rest: Input;

  constructor(input: Input) {
    this.#rest = { ...input };
  }

  take(...names: string[]): string | undefined {
    for (const name of names) {
      const value = this.#rest[name];
      if (typeof value !== 'string') continue;
      delete this.#rest[name];
      return value;
    }
    return undefined;
  }

  edits(): [string, string][] {
    const list = this.#rest.edits;
    if (!Array.isArray(list) || !list.every((e) => isInput(e) && typeof e.old_string === 'string' && typeof e.new_string === 'string' && Object.keys(e).length === 2)) return [];
    delete this.#rest.edits;
    return list.map((e: Input) => [String(e.old_string), String(e.new_string)]);
  }

  rest(): Section[] {
    return Object.keys(this.#rest).length === 0 ? [] : [{ kind: 'rest', text: JSON.stringify(this.#rest, null, 2) }];
  }
}

// sectionsOf reads an input as the known coding agents write it: of a shell the
// command, of an edit the file and the change, whatever else there is as JSON.
export function sectionsOf(input: unknown): Section[] {
  if (!isInput(input)) return [{ kind: 'rest', text: JSON.stringify(input, null, 2) }];
  const reader = new Reader(input);
  const sections: Section[] = [];
  const text = (kind: 'path' | 'command' | 'why' | 'plan', found: string | undefined) => {
    if (found !== undefined) sections.push({ kind, text: found });
    return found !== undefined;
  };
  const path = text('path', reader.take('file_path', 'notebook_path', 'filePath', 'path'));
  if (text('command', reader.take('command', 'cmd'))) text('why', reader.take('description'));
  if (path) {
    const [before, after] = [reader.take('old_string', 'oldString'), reader.take('new_string', 'newString')];
    if (before !== undefined || after !== undefined) sections.push({ kind: 'change', before: before ?? '', after: after ?? '' });
    for (const [from, to] of reader.edits()) sections.push({ kind: 'change', before: from, after: to });
    const content = reader.take('content', 'new_source');
    if (content !== undefined) sections.push({ kind: 'content', before: '', after: content });
  }
  text('plan', reader.take('plan'));
  return [...sections, ...reader.rest()];
}

// What stands above a section.
export const labels: Record<Section['kind'], string> = {
  path: 'File', command: '', why: 'What it is for, as the coding agent says', change: 'Change', content: 'Content', plan: 'Plan', rest: 'Also',
};

// partsOf shows all of an input.
export function partsOf(input: unknown): Part[] {
  return sectionsOf(input).map((section, at) => {
    if ('after' in section) return change(labels[section.kind], section);
    return part(section.kind === 'rest' && at === 0 ? '' : labels[section.kind], section.text);
  });
}

// change is what an edit takes away and puts in.
function change(label: string, { before, after }: { before: string; after: string }): Part {
  const from = before === '' ? [] : textLines(before, '-');
  const to = after === '' ? [] : textLines(after, '+');
  return { label, lines: from.length + to.length === 0 ? [{ sign: '', text: '(empty)' }] : [...from, ...to] };
}

// Programs whose first argument says what they do.
const families = new Set(['git', 'go', 'npm', 'pnpm', 'yarn', 'npx', 'cargo', 'docker', 'kubectl', 'make', 'pip', 'uv', 'gh', 'systemctl', 'apt-get', 'python', 'python3', 'node', 'bun', 'deno', 'terraform', 'bundle', 'mvn', 'gradle', 'dotnet']);

// prefixOf is the beginning of a command that is worth a rule: its program, with
// what that is to do. There is none for more than one plain command.
export function prefixOf(command: string): string | undefined {
  if (/[\n\r;&|<>`$(){}\\'"*?#~!]/.test(command)) return undefined;
  const [program, verb] = command.trim().split(/\s+/);
  if (program === undefined || !/^[A-Za-z0-9_][\w.+-]*$/.test(program)) return undefined;
  return families.has(program) && verb !== undefined && /^[a-z][\w:.-]*$/.test(verb) ? `${program} ${verb}` : program;
}

// Tools that ask a person something themselves.
const asking = new Set(['AskUserQuestion', 'ExitPlanMode']);

// rulesOf are what a person may have remembered about a tool's use, the narrower
// one first.
export function rulesOf(tool: string, input: unknown): Rule[] {
  if (asking.has(tool)) return [];
  const whole = { entry: tool, text: `Every use of ${visible(tool)}` };
  const command = tool === 'Bash' && isInput(input) ? input.command : undefined;
  const prefix = typeof command === 'string' ? prefixOf(command) : undefined;
  return prefix === undefined ? [whole] : [{ entry: `Bash(${prefix}:*)`, text: `Commands that begin with ${visible(prefix)}` }, whole];
}

export interface ToolApproval {
  tool?: string;
  input?: unknown;
  input_sha256?: string;
}

// toolView shows an approval of kind tool.
export function toolView({ tool = '', input, input_sha256: hash }: ToolApproval): ToolView {
  const parts = input !== undefined ? partsOf(input) : hash ? [part('', `It is too long to be shown here. SHA-256 ${hash}`)] : [];
  return { tool: visible(tool), parts, rules: rulesOf(tool, input), answered: tool === 'AskUserQuestion' };
}
