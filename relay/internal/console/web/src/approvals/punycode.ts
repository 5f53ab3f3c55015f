// Names of hosts as people write them: RFC 3492 and the xn-- of RFC 5890. Pure.

const base = 36;
const tMin = 1;
const tMax = 26;

function adapt(delta: number, points: number, first: boolean): number {
  let k = 0;
  delta = first ? Math.floor(delta / 700) : delta >> 1;
  delta += Math.floor(delta / points);
  for (; delta > ((base - tMin) * tMax) >> 1; k += base) delta = Math.floor(delta / (base - tMin));
  return k + Math.floor(((base - tMin + 1) * delta) / (delta + 38));
}

function digit(c: string | undefined): number {
  if (c === undefined) return base;
  if (c >= '0' && c <= '9') return c.charCodeAt(0) - 22;
  return c >= 'a' && c <= 'z' ? c.charCodeAt(0) - 97 : base;
}

// decode returns the text of a label after xn--, or undefined if it is invalid.
export function decode(label: string): string | undefined {
  const dash = label.lastIndexOf('-');
  const out = Array.from(label.slice(0, Math.max(dash, 0)), (c) => c.codePointAt(0) ?? 0);
  let [n, i, bias] = [128, 0, 72];
  for (let at = dash + 1; at < label.length; ) {
    const before = i;
    for (let k = base, weight = 1; ; k += base) {
      const d = digit(label[at++]);
      if (d >= base) return undefined;
      i += d * weight;
      const t = Math.min(Math.max(k - bias, tMin), tMax);
      if (i > 0x7fff_ffff) return undefined;
      if (d < t) break;
      weight *= base - t;
    }
    const points = out.length + 1;
    bias = adapt(i - before, points, before === 0);
    n += Math.floor(i / points);
    i %= points;
    if (n > 0x10ffff || (n >= 0xd800 && n < 0xe000)) return undefined;
    out.splice(i++, 0, n);
  }
  return String.fromCodePoint(...out);
}

// reading is a canonical host as people would read it, or undefined where that
// is the host itself.
export function reading(host: string): string | undefined {
  let changed = false;
  const labels = host.split('.').map((label) => {
    const read = label.startsWith('xn--') ? decode(label.slice(4)) : undefined;
    changed ||= read !== undefined;
    return read ?? label;
  });
  return changed ? labels.join('.') : undefined;
}
