// What a tool's use says in one line, and what is in it. Pure.

import { diffLines } from 'diff';
import { labels, sectionsOf, type Section } from '../approvals/tool.ts';
import { visible } from '../ui/visible.ts';

// A Line is one line of a change of a file.
export interface Line {
  sign: '+' | '-' | ' ';
  text: string;
}

// A Piece is a part of a tool's input: a text, or what changes.
export type Piece = { label: string; text: string } | { label: string; change: Line[] };

// A Use is what a tool is to do, for a person to read.
export interface Use {
  title: string; // in one line
  pieces: Piece[];
}

const mostLines = 2_000;
const contextLines = 3;

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
const textOf = (input: Record<string, unknown>, ...names: string[]): string | undefined => {
  const found = names.map((name) => input[name]).find((value) => typeof value === 'string');
  return typeof found === 'string' ? found : undefined;
};

// useOf reads a tool's input: what is to be done, and all that was said with it.
export function useOf(input: unknown): Use {
  const sections = input === undefined || input === null ? [] : sectionsOf(input);
  const text = (...kinds: Section['kind'][]) => kinds.map((kind) => sections.find((s) => s.kind === kind)).find((s) => s !== undefined && 'text' in s && s.text !== '');
  const found = text('why', 'command', 'path');
  const about = found !== undefined && 'text' in found ? found.text : isRecord(input) ? textOf(input, 'pattern', 'query', 'url', 'prompt', 'description') : undefined;
  return { title: firstLine(about ?? ''), pieces: sections.map(pieceOf) };
}

const pieceNames: Partial<Record<Section['kind'], string>> = { command: 'Command', rest: 'Input' };

function pieceOf(section: Section): Piece {
  const label = pieceNames[section.kind] ?? labels[section.kind];
  return 'after' in section ? { label, change: changeOf(section.before, section.after) } : { label, text: section.text };
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

// answerOf is what a person has chosen, and written beside that; '' if it is nothing.
export function answerOf(chosen: string[], other: string): string {
  return [...chosen, other].map((text) => text.trim()).filter((text) => text !== '').join(', ');
}

// problemOf says which question has no answer yet.
export function problemOf(choices: Choice[], missing: number): string {
  const { question = '', several = false, options = [] } = choices[missing] ?? {};
  const what = options.length === 0 ? 'Write an answer' : `Choose ${several ? 'at least one' : 'one'}, or write another answer`;
  return choices.length > 1 ? `${what}, to “${visible(question)}”.` : `${what}.`;
}
