// What a terminal would answer to a program by itself. The sandbox answers
// these questions once and truly; were every viewer's xterm.js to answer as
// well, the program would read its answers many times.

import type { IFunctionIdentifier, IParser } from '@xterm/xterm';

const silentCsi: IFunctionIdentifier[] = [
  { final: 'c' }, // DA1
  { prefix: '>', final: 'c' }, // DA2
  { prefix: '=', final: 'c' }, // DA3
  { prefix: '>', final: 'q' }, // XTVERSION
  { prefix: '?', final: 'u' }, // kitty keyboard
  { intermediates: '$', final: 'p' }, // DECRQM
  { prefix: '?', intermediates: '$', final: 'p' },
  { final: 't' }, // window reports and changes
  { final: 'x' }, // DECREQTPARM
  { final: 'n' }, // DSR, CPR
  { prefix: '?', final: 'n' },
];
const silentDcs: IFunctionIdentifier[] = [
  { intermediates: '$', final: 'q' }, // DECRQSS
  { intermediates: '+', final: 'q' }, // XTGETTCAP
];
const colours = [4, 5, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19];

const yes = () => true; // handled: xterm.js' own handler is not asked

// silence keeps xterm.js from answering.
export function silence(parser: IParser): void {
  for (const id of silentCsi) parser.registerCsiHandler(id, yes);
  for (const id of silentDcs) parser.registerDcsHandler(id, yes);
  for (const id of colours) parser.registerOscHandler(id, (data) => data.split(';').includes('?'));
}

// automatic reports whether xterm.js made data without the person: the focus
// reports that a program has asked for.
export function automatic(data: string): boolean {
  return data === '\x1b[I' || data === '\x1b[O';
}

// fromPointer reports whether data is a mouse report: a viewer who moves the
// mouse isn't trying to type.
export function fromPointer(data: string): boolean {
  return /^\x1b\[(M|<\d)/.test(data);
}
