// For TestVerdicts alone: reads tokens, a JSON object a line, and says what the
// extension makes of each, for Go to compare with what it makes of them.

import { readFileSync } from 'node:fs';
import { open, timely } from './command.ts';
import { foldName } from './json.ts';
import { decode, KeySet } from './jws.ts';
import { Refusal } from './refusal.ts';

const [, , path = '', about = ''] = process.argv;
const { now, sets, names } = JSON.parse(readFileSync(about, 'utf8')) as { now: number; sets: string[]; names: [string, string][] };
const keys = await Promise.all(sets.map((set) => KeySet.read(set)));

async function verdict(token: string, set: KeySet | undefined): Promise<string> {
  try {
    const decoded = decode(token);
    await (set ?? KeySet.empty).verify(decoded);
    timely(open(decoded.typ, decoded.payload), now);
    return 'ok';
  } catch (e) {
    return e instanceof Refusal ? e.name : String(e);
  }
}

const lines = readFileSync(path, 'utf8').split('\n').filter((line) => line !== '');
const answers: string[] = [];
for (const line of lines) {
  const { token, set } = JSON.parse(line) as { token: string; set: number };
  answers.push(await verdict(token, keys[set]));
}
console.log(JSON.stringify({ answers, folded: names.map(([a, b]) => foldName(a) === foldName(b)) }));
