// Variables and secrets of a session's terminals: what is asked for, and what a
// .env file says. Pure.

import { visible } from '../ui/visible.ts';

export interface EnvVariable {
  name: string;
  pty_id?: string; // set for this terminal alone
  secret: boolean;
  broker_protected: boolean;
  domains?: string[] | null; // approved for a custom secret
}

// An Addition is one variable to be set.
export interface Addition {
  name: string;
  value: string;
  secret: boolean;
  brokered: boolean; // terminals get a placeholder
  domains: string[]; // of a brokered one that no provider is known for
}

// EnvRequest is the body of POST …/env.
export interface EnvRequest {
  set?: Record<string, string>;
  secrets?: Record<string, { value: string; broker_protected: boolean }>;
  approved_domains?: { secret_name: string; domain: string }[];
  unset?: string[];
  apply_now: boolean;
}

// A secret has this many bytes at least: a shorter one would be masked wherever
// it happens to stand.
export const leastSecretBytes = 8;

// The variables for which the sandbox's broker knows where they may go.
const providers = new Set([
  'ANTHROPIC_API_KEY', 'OPENAI_API_KEY', 'GOOGLE_API_KEY', 'GEMINI_API_KEY', 'ELEVENLABS_API_KEY', 'DEEPGRAM_API_KEY',
  'GROQ_API_KEY', 'TOGETHER_API_KEY', 'FIREWORKS_API_KEY', 'MISTRAL_API_KEY', 'COHERE_API_KEY', 'CO_API_KEY',
  'REPLICATE_API_TOKEN', 'HUGGINGFACE_API_KEY', 'HF_TOKEN', 'OPENROUTER_API_KEY',
]);

export const ofProvider = (name: string): boolean => providers.has(name);

// problemOf says what is wrong with a variable, '' where nothing is. The server
// has the last word.
export function problemOf({ name, value, secret, domains }: Addition): string {
  if (!/^[A-Z_][A-Z0-9_]*$/.test(name)) return 'A name has capital letters, digits and underscores, and begins with no digit.';
  if (value === '') return `${name} has no value.`;
  if (value.includes('\0')) return `${name}: a value can’t hold a NUL.`;
  if (secret && new TextEncoder().encode(value.trim()).length < leastSecretBytes) {
    return `${name}: a secret has ${leastSecretBytes} bytes at least. Set it as a plain variable, or use a longer one.`;
  }
  const odd = domains.find((domain) => !/^[^\s/:@*]+$/.test(domain));
  return odd === undefined ? '' : `${visible(odd)} is not the name of a host.`;
}

// domainsOf splits what was typed.
export const domainsOf = (text: string): string[] => [...new Set(text.split(/[\s,;]+/).filter((part) => part !== ''))];

// whenText says from when on a change counts: a shell that waits at its prompt
// reads it before the next one, so the first command there misses it.
export function whenText(applyNow: boolean): string {
  return applyNow
    ? 'New terminals have the change. A shell that waits at its prompt has it from the next prompt on: its first command misses it, so press Enter there once.'
    : 'Terminals that are opened from now on have the change, those that run don’t.';
}

export function requestOf(additions: Addition[], applyNow: boolean): EnvRequest {
  const request: EnvRequest = { apply_now: applyNow };
  for (const { name, value, secret, brokered, domains } of additions) {
    if (!secret) {
      (request.set ??= {})[name] = value;
      continue;
    }
    (request.secrets ??= {})[name] = { value, broker_protected: brokered };
    if (!brokered || ofProvider(name)) continue;
    for (const domain of domains) (request.approved_domains ??= []).push({ secret_name: name, domain });
  }
  return request;
}

// suggest is what a variable is taken for until somebody says otherwise.
export function suggest(name: string, value: string): Addition {
  const secret = new TextEncoder().encode(value.trim()).length >= leastSecretBytes;
  return { name, value, secret, brokered: secret && ofProvider(name), domains: [] };
}

export interface Parsed {
  additions: Addition[]; // the last of a name counts
  skipped: number[]; // lines that are no assignment, from 1
}

// looksLikeFile reports whether what was pasted is more than a name or a value.
export const looksLikeFile = (text: string): boolean => /^\s*(#[^\n]*\n\s*)*(export\s+)?[A-Za-z_][A-Za-z0-9_]*\s*=/.test(text);

// parse reads a .env file: NAME=value, quotes of both kinds, also over several
// lines, comments, and "export" in front. Variables within values stay as they
// are written.
export function parse(text: string): Parsed {
  const found = new Map<string, Addition>();
  const skipped: number[] = [];
  const source = text.replace(/^\ufeff/, '').replace(/\r\n?/g, '\n');
  for (let at = 0, line = 1; at < source.length; ) {
    const end = source.indexOf('\n', at) < 0 ? source.length : source.indexOf('\n', at);
    const start = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=[ \t]*/.exec(source.slice(at, end));
    let next = end;
    if (start !== null) {
      const value = valueAt(source, at + start[0].length);
      if (value === undefined) skipped.push(line);
      else {
        found.delete(start[1] ?? '');
        found.set(start[1] ?? '', suggest(start[1] ?? '', value.text));
        next = value.end;
      }
    } else if (!/^\s*(#|$)/.test(source.slice(at, end))) skipped.push(line);
    line += source.slice(at, next).split('\n').length; // this one, and what a value spans
    at = next + 1;
  }
  return { additions: [...found.values()], skipped };
}

const escapes: Record<string, string> = { n: '\n', r: '\r', t: '\t' };

// valueAt reads the value at a place, and returns the end of its last line;
// undefined for quotes that don't end, or text behind them.
function valueAt(source: string, from: number): { text: string; end: number } | undefined {
  const eol = source.indexOf('\n', from) < 0 ? source.length : source.indexOf('\n', from);
  const quote = source[from];
  if (quote !== '"' && quote !== "'" && quote !== '`') {
    return { text: source.slice(from, eol).replace(/(^|\s)#.*$/, '').trim(), end: eol };
  }
  let text = '';
  for (let at = from + 1; at < source.length; at++) {
    const c = source[at] ?? '';
    if (c === quote) {
      const end = source.indexOf('\n', at) < 0 ? source.length : source.indexOf('\n', at);
      return /^\s*(#.*)?$/.test(source.slice(at + 1, end)) ? { text, end } : undefined;
    }
    const escaped = quote === '"' && c === '\\' ? source[++at] : undefined;
    text += escaped === undefined ? c : (escapes[escaped] ?? (/["\\$`]/.test(escaped) ? escaped : `\\${escaped}`));
  }
  return undefined;
}

// flagsOf says in words what a variable is.
export function flagsOf({ secret, broker_protected, domains }: EnvVariable): string[] {
  if (!secret) return ['plain'];
  if (!broker_protected) return ['secret'];
  const hosts = (domains ?? []).map(visible).join(', ');
  return hosts === '' ? ['secret', 'broker only'] : ['secret', 'broker only', `to ${hosts}`];
}
