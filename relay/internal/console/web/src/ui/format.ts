// Numbers and faults as people read them. Pure.

// messageOf is what an error says.
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

// size is a number of bytes.
export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const kib = bytes / 1024;
  if (kib < 1024) return `${kib < 10 ? kib.toFixed(1) : Math.round(kib)} KiB`;
  return kib < 1024 * 1024 ? `${(kib / 1024).toFixed(1)} MiB` : `${(kib / 1024 / 1024).toFixed(1)} GiB`;
}
