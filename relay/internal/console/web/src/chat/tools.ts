// What a tool's use says in one line, and what is in it. Pure.

import { diffLines } from 'diff';

// A Line is one line of a change of a file.
export interface Line {
  sign: '+' | '-' | ' ';
  text: string;
}

// A Use is what a tool is to do, for a person to read.
export interface Use {
  title: string; // in one line
  command?: string;
  change?: Line[];
  rest?: string; // JSON of what else there is
}

const mostLines = 2_000;
const contextLines = 3;

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
const textOf = (input: Record<string, unknown>, ...names: string[]): string | undefined => {
  const found = names.map((name) => input[name]).find((value) => typeof value === 'string');
  return typeof found === 'string' ? found : undefined;
};

// useOf reads a tool's input as the known coding agents write it.
export function useOf(tool: string, input: unknown): Use {
  if (!isRecord(input)) return { title: tool, ...(input === undefined || input === null ? {} : { rest: JSON.stringify(input, null, 2) }) };
  const path = textOf(input, 'file_path', 'path', 'notebook_path', 'filePath');
  const command = textOf(input, 'command', 'cmd');
  if (command !== undefined) return { title: textOf(input, 'description') || firstLine(command), command };
  const [before, after] = [textOf(input, 'old_string', 'oldString'), textOf(input, 'new_string', 'newString', 'content')];
  if (path !== undefined && after !== undefined) return { title: path, change: changeOf(before ?? '', after) };
  const about = path ?? textOf(input, 'pattern', 'query', 'url', 'prompt', 'description');
  return { title: about === undefined ? '' : firstLine(about), ...(Object.keys(input).length === 0 ? {} : { rest: JSON.stringify(input, null, 2) }) };
}

const firstLine = (text: string): string => text.split('\n', 1)[0] ?? '';

// changeOf compares two texts by lines, with a few unchanged ones around changes.
export function changeOf(before: string, after: string): Line[] {
  if (before.split('\n').length + after.split('\n').length > mostLines) {
    return [...linesOf(before, '-'), ...linesOf(after, '+')].slice(0, mostLines);
  }
  const lines = diffLines(before, after).flatMap(({ value, added, removed }) => linesOf(value, added ? '+' : removed ? '-' : ' '));
  const near = (at: number) => lines.slice(Math.max(0, at - contextLines), at + contextLines + 1).some(({ sign }) => sign !== ' ');
  return lines.filter((line, at) => line.sign !== ' ' || near(at));
}

function linesOf(text: string, sign: Line['sign']): Line[] {
  if (text === '') return [];
  return text.replace(/\n$/, '').split('\n').map((line) => ({ sign, text: line }));
}

// A Choice is one question of AskUserQuestion.
export interface Choice {
  question: string;
  header: string;
  several: boolean;
  options: { label: string; description: string }[];
}

// choicesOf reads the input of AskUserQuestion; none for any other.
export function choicesOf(tool: string, input: unknown): Choice[] {
  if (tool !== 'AskUserQuestion' || !isRecord(input) || !Array.isArray(input.questions)) return [];
  return input.questions.filter(isRecord).map((q) => ({
    question: textOf(q, 'question') ?? '',
    header: textOf(q, 'header') ?? '',
    several: q.multiSelect === true,
    options: (Array.isArray(q.options) ? q.options : []).filter(isRecord).map((o) => ({ label: textOf(o, 'label') ?? '', description: textOf(o, 'description') ?? '' })),
  }));
}

// ruleOf is what "always" remembers of a tool's use: the program of a command, or
// the tool.
export function ruleOf(tool: string, input: unknown): string {
  const command = tool === 'Bash' && isRecord(input) ? textOf(input, 'command') : undefined;
  const program = command?.trim().split(/\s+/, 1)[0];
  return program === undefined || !/^[\w./-]+$/.test(program) ? tool : `Bash(${program}:*)`;
}
