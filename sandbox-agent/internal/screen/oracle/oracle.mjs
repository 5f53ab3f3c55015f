// The oracle of package screen's tests: the terminal that viewers run, without
// a browser. It reads one JSON request per line from standard input and
// answers each with one line of JSON on standard output, in order.
//
// A request describes a terminal and what happens to it:
//
//   {"cols": 80, "rows": 24, "scrollback": 1000, "steps": [
//     {"write": "<base64>"}, {"resize": [100, 30]}, {"snapshot": true}]}
//
// The answer holds one state for each snapshot and what the terminal itself
// answered to the program, or at which step it failed:
//
//   {"states": [...], "answers": ["<string>", ...], "error": {"step": 3, "message": "..."}}

import addon from '@xterm/addon-unicode-graphemes';
import headless from '@xterm/headless';
import { createInterface } from 'node:readline';

// What xterm.js would repeat for minutes: a test shouldn't wait for that.
const repeatLimit = 100_000;
// xterm.js decodes larger writes in pieces of 128 KiB, which may cut characters.
const writeBytes = 64 << 10;

// More of the newest lines of history than keyframes carry.
const historyShown = 1200;

const contentMask = 0x1fffff;
const combined = 0x200000;
const hasContent = 0x3fffff;
const widthShift = 22;
const colourMode = 0x3000000;
const rgbMode = 0x3000000;
const extended = 0x10000000; // in bg
const underlined = 0x10000000; // in fg

// Of a cell's fg and bg words, in the order of the bits of a state's flags.
const flagBits = [
  ['fg', 0x8000000], // bold
  ['bg', 0x8000000], // dim
  ['bg', 0x4000000], // italic
  ['fg', 0x10000000], // underline
  ['fg', 0x20000000], // blink
  ['fg', 0x4000000], // inverse
  ['fg', 0x40000000], // invisible
  ['fg', 0x80000000], // strike
  ['bg', 0x40000000], // overline
  ['bg', 0x20000000], // protected
];

const charsetNames = ['0', 'A', '4', 'C', 'R', 'Q', 'K', 'Y', 'E', 'Z', 'H', '='];
const charsets = namedCharsets();

class Case {
  constructor({ cols, rows, scrollback }) {
    this.term = open(cols, rows, scrollback);
    this.core = this.term._core;
    this.answers = [];
    this.title = '';
    this.colours = new Map();
    this.cut = new Uint8Array(0); // of a character whose end hasn't been written
    this.term.onData((data) => this.answers.push(data));
    this.term.onTitleChange((title) => (this.title = title));
    this.core._inputHandler.onColor((event) => this.#colour(event));
  }

  // Headless, colours have nowhere to go; a browser's terminal keeps them.
  #colour(event) {
    for (const { type, index, color } of event) {
      if (type === 0) this.answers.push(`colour ${index}`);
      else if (type === 1) this.colours.set(index, color.join(','));
      else if (index === undefined) this.#restoreColours();
      else this.colours.delete(index);
    }
  }

  #restoreColours() {
    for (const index of [...this.colours.keys()]) if (index < 256) this.colours.delete(index);
  }

  // write parses at once: writeSync does what write does later, in the same
  // order, as long as no handler is asynchronous, and ours aren't. xterm.js
  // loses some characters that are cut between two writes, and so viewers put
  // them together first.
  write(bytes) {
    const whole = Buffer.concat([this.cut, bytes]);
    let start = 0;
    while (whole.length - start > writeBytes) {
      const end = start + writeBytes - cutLength(whole.subarray(start, start + writeBytes));
      this.core.writeSync(whole.subarray(start, end));
      start = end;
    }
    const end = whole.length - cutLength(whole.subarray(start));
    if (end > start) this.core.writeSync(whole.subarray(start, end));
    this.cut = whole.subarray(end);
  }

  resize([cols, rows]) {
    this.term.resize(cols, rows);
  }

  // verify fails if xterm.js has lost lines of a screen.
  verify() {
    for (const { lines, ybase } of [this.core.buffers.normal, this.core.buffers.alt]) {
      if (lines.length > 0 && lines.length < ybase + this.term.rows) throw new Error('lines are missing');
    }
  }

  state() {
    this.misfit = false;
    const { normal, alt, active } = this.core.buffers;
    const { cols, rows } = this.term;
    return {
      cols,
      rows,
      x: active.x,
      y: active.y,
      title: this.title,
      mouse: this.term.modes.mouseTrackingMode,
      modes: this.#modes(),
      screen: this.#lines(active, active.ybase, active.ybase + rows),
      history: this.#lines(normal, Math.max(0, normal.ybase - historyShown), normal.ybase),
      other: active === alt ? this.#lines(normal, normal.ybase, normal.ybase + rows) : [],
      pen: this.#pen(this.core._inputHandler._curAttrData),
      deep: this.#deep(),
      hiddenCells: active === alt && range(alt.lines.length).some((y) => alt.lines.get(y)?.length > cols),
      savedOff: [normal, alt].some(({ savedY, ybase }) => savedY >= ybase + rows) || this.#irregularBelow(normal),
      irregularPen: irregular(this.core._inputHandler._curAttrData),
      penElsewhere: active === alt && this.#penElsewhere(),
      misfit: this.misfit,
      staleText: this.#staleText(normal),
      hiddenTabs: [normal, alt].some(({ tabs }) => stops(tabs).some((x) => x >= cols)),
      oddTabs: [normal, alt].some(({ tabs }) => !regular(tabs, cols)),
    };
  }

  // A pen that restoring a cursor has left can only come from that cursor, and
  // takes the place of what is saved.
  #irregularBelow({ lines, savedY, ybase }) {
    if (savedY >= ybase) return false;
    const attributes = { fg: 0, bg: 0 };
    for (let y = savedY + this.term.rows; y < ybase + this.term.rows; y++) {
      const line = lines.get(y);
      for (let x = 0; x < line.length; x++) {
        attributes.fg = line.getFg(x);
        attributes.bg = line.getBg(x);
        attributes.extended = line._extendedAttrs[x];
        if (irregular(attributes)) return true;
      }
    }
    return false;
  }

  // Beyond the last columns there may be texts of cells that hold others now,
  // or that a smaller size has cut off. Larger sizes may show them.
  #staleText({ lines }) {
    const last = this.term.cols - 1;
    return range(lines.length).some((y) => {
      const line = lines.get(y);
      return Object.keys(line._combined).some((x) => x > last || (Number(x) === last && line.isCombined(last) === 0));
    });
  }

  // Pen and character set were restored from a cursor of the normal screen.
  #penElsewhere() {
    const pen = this.core._inputHandler._curAttrData;
    const { savedCurAttrData: saved, savedCharset } = this.core.buffers.alt;
    const { glevel, charset, _charsets: designated } = this.core._charsetService;
    return (
      (irregular(pen) && (((pen.fg ^ saved.fg) & underlined) !== 0 || ((pen.bg ^ saved.bg) & extended) !== 0)) ||
      (charset !== designated[glevel] && charset !== savedCharset)
    );
  }

  #modes() {
    const { modes } = this.term;
    return {
      applicationCursor: modes.applicationCursorKeysMode,
      applicationKeypad: modes.applicationKeypadMode,
      bracketedPaste: modes.bracketedPasteMode,
      insert: modes.insertMode,
      origin: modes.originMode,
      reverseWraparound: modes.reverseWraparoundMode,
      sendFocus: modes.sendFocusMode,
      wraparound: modes.wraparoundMode,
      synchronizedOutput: modes.synchronizedOutputMode,
      cursorHidden: this.core.coreService.isCursorHidden,
      alternate: this.term.buffer.active.type === 'alternate',
    };
  }

  // deep is what shows only in what happens next.
  #deep() {
    const { normal, alt, active } = this.core.buffers;
    const { rawOptions } = this.core.optionsService;
    const { cursorStyle, cursorBlink } = this.core.coreService.decPrivateModes;
    const { glevel, charset, _charsets: designated } = this.core._charsetService;
    return {
      normal: this.#buffer(normal),
      alternate: active === alt ? this.#buffer(alt) : null,
      charsets: [0, 1, 2, 3].map((g) => charsetName(designated[g])),
      charset: charsetName(charset),
      shift: glevel,
      join: joint(this.core._inputHandler._parser.precedingJoinState),
      cursorStyle: cursorStyle ?? '',
      cursorBlink: cursorBlink ?? null, // what CSI ? 12 h changes is the viewer's own preference
      newLine: rawOptions.convertEol,
      mouseEncoding: this.core.coreMouseService.activeEncoding,
      colours: [...this.colours].sort(([a], [b]) => a - b).map(([index, value]) => `${index}=${value}`),
    };
  }

  #buffer(buffer) {
    const { cols, rows } = this.term;
    const { fg, bg } = buffer.savedCurAttrData;
    return {
      savedX: buffer.savedX,
      savedY: Math.min(Math.max(buffer.savedY - buffer.ybase, 0), rows - 1),
      savedFg: colour(fg),
      savedBg: colour(bg),
      savedFlags: flags({ fg, bg }),
      savedCharset: charsetName(buffer.savedCharset),
      top: buffer.scrollTop,
      bottom: buffer.scrollBottom,
      tabs: stops(buffer.tabs).filter((x) => x < cols),
    };
  }

  #pen({ fg, bg, extended: ext }) {
    return [colour(fg), colour(bg), flags({ fg, bg }), this.#extended(bg, ext)];
  }

  #lines(buffer, from, to) {
    const lines = [];
    for (let y = from; y < to; y++) lines.push(this.#line(buffer.lines.get(y)));
    return lines;
  }

  // A line is whether it continues the one before (w), a character for each
  // cell (t) where NUL is an empty cell and SOH one that is listed in s with
  // its text and width, and runs of cells that look alike (a), without the
  // empty cells at its end.
  #line(line) {
    if (line === undefined) return { missing: true };
    const { _data: data } = line;
    const length = Math.min(line.length, this.term.cols);
    const text = [];
    const special = [];
    const runs = [];
    let end = 0; // of the cells that aren't empty
    let before; // fg, bg and extended attributes of the last cell
    for (let x = 0; x < length; x++) {
      const content = data[3 * x];
      const width = content >>> widthShift;
      let chars = '';
      if (content & combined) chars = line._combined[x];
      else if (content & hasContent) chars = String.fromCodePoint(content & contentMask);
      if (chars.length > 1 || chars > '\x7f') this.misfit ||= printedWidth(chars) !== width;
      if (width === 1 && chars === '') text.push('\0');
      else if (width === 1 && chars.length === 1 && chars > '\x01') text.push(chars);
      else {
        text.push('\x01');
        special.push([chars, width]);
      }
      const [fg, bg] = [data[3 * x + 1], data[3 * x + 2]];
      const ext = bg & extended ? line._extendedAttrs[x] : undefined;
      if (before?.fg === fg && before.bg === bg && before.ext === ext) runs[runs.length - 1][0]++;
      else runs.push([1, [colour(fg), colour(bg), flags({ fg, bg }), this.#extended(bg, ext)]]);
      before = { fg, bg, ext };
      if (fg !== 0 || bg !== 0) end = runs.length;
    }
    runs.length = end;
    return { w: line.isWrapped, t: text.join('').replace(/\0+$/, ''), s: special, a: runs };
  }

  // extended is an underline's style and colour and the hyperlink, as text.
  // xterm.js forgets a hyperlink with the lines it began in: NUL.
  #extended(bg, ext) {
    if ((bg & extended) === 0 || ext === undefined) return '';
    const style = (ext._ext >> 26) & 7;
    if (style === 0 && colour(ext._ext) === 0 && ext._urlId === 0) return '';
    const { id, uri } = ext._urlId === 0 ? { uri: '' } : (this.core._oscLinkService.getLinkData(ext._urlId) ?? { uri: '\0' });
    return `${style} ${colour(ext._ext)} ${id ?? ''} ${uri}`;
  }
}

// Reflowing a line onto itself, xterm.js may give a cell the text of another
// one, which then has a width that it can't be printed with. So may a mark that
// makes a character too wide for a screen of one row, which scrolls it away.
const widths = new Map();

function printedWidth(chars) {
  let width = widths.get(chars);
  if (width === undefined) {
    const term = open(16, 2, 0);
    term._core.writeSync(Buffer.from(chars));
    width = term._core.buffers.active.x;
    term.dispose();
    widths.set(chars, width);
  }
  return width;
}

function open(cols, rows, scrollback) {
  const term = new headless.Terminal({ allowProposedApi: true, cols, rows, scrollback, logLevel: 'off' });
  term.loadAddon(new addon.UnicodeGraphemesAddon());
  for (const final of 'STLMbIZ') {
    term.parser.registerCsiHandler({ final }, ([count]) => {
      if (count > repeatLimit) throw new Error('repeats too often to wait for');
      return false;
    });
  }
  return term;
}

// cutLength is how many bytes at the end begin a character without ending it.
function cutLength(bytes) {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back];
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) return byte < 0xf8 && back < (byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4) ? back : 0;
  }
  return 0;
}

// colour is a mode (0 default, 1 of 16, 2 of 256, 3 RGB) << 24 and a value.
function colour(word) {
  const mode = word & colourMode;
  if (mode === 0) return 0;
  return mode | (word & (mode === rgbMode ? 0xffffff : 0xff));
}

function flags(words) {
  let bits = 0;
  flagBits.forEach(([word, mask], i) => {
    if (words[word] & mask) bits |= 1 << i;
  });
  return bits;
}

// irregular reports whether a pen is one that SGR and OSC 8 alone don't make.
function irregular({ fg, bg, extended: ext }) {
  const has = (bg & extended) !== 0;
  const style = ext === undefined ? 0 : (ext._ext >> 26) & 7;
  const link = ext === undefined ? 0 : ext._urlId;
  return ((fg & underlined) !== 0) !== (has && style !== 0) || has !== (style !== 0 || link !== 0);
}

function range(n) {
  return [...Array(n).keys()];
}

function stops(tabs) {
  return Object.keys(tabs).map(Number).filter((x) => tabs[x]);
}

// regular reports whether the tab stops are those at the start.
function regular(tabs, cols) {
  const seen = stops(tabs).filter((x) => x < cols);
  return seen.length === Math.ceil(cols / 8) && seen.every((x) => x % 8 === 0);
}

// joint is what a next character may join: nothing, or a width and kind.
function joint(state) {
  return state === 0 ? '' : `${(state >> 1) & 3} ${(state >> 3) & 15}`;
}

function charsetName(charset) {
  return charset === undefined ? 'B' : (charsets.get(charset) ?? '?');
}

function namedCharsets() {
  const names = new Map();
  const term = open(2, 1, 0);
  for (const name of charsetNames) {
    term._core.writeSync(Buffer.from(`\x1b(${name}`));
    const charset = term._core._charsetService.charset;
    if (!names.has(charset)) names.set(charset, name);
  }
  term.dispose();
  return names;
}

function run(request) {
  const it = new Case(request);
  const states = [];
  let step = 0;
  try {
    for (; step < request.steps.length; step++) {
      const { write, resize, snapshot } = request.steps[step];
      if (write !== undefined) it.write(Buffer.from(write, 'base64'));
      if (resize !== undefined) it.resize(resize);
      it.verify();
      if (snapshot) states.push(it.state());
    }
  } catch (error) {
    return { states, answers: it.answers, error: { step, message: String(error) } };
  } finally {
    it.term.dispose();
  }
  return { states, answers: it.answers };
}

console.warn = () => {}; // how long xterm.js takes to free memory

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(run(JSON.parse(line)))}\n`);
}
