// How large a JPEG picture says it is, before a browser makes room for it. Pure.

// A picture with more pixels than this is not drawn: a few bytes can claim
// gigabytes.
export const mostPixels = 16_000_000;

// jpegSize returns undefined for what is no JPEG picture.
export function jpegSize(data: Uint8Array): { width: number; height: number } | undefined {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (data.length < 4 || view.getUint16(0) !== 0xffd8) return undefined;
  for (let at = 2; at + 9 <= data.length; ) {
    if (data[at] !== 0xff) return undefined;
    const marker = data[at + 1] ?? 0;
    if (marker === 0xff) {
      at++; // filling
      continue;
    }
    // A frame header: SOF0 to SOF15, but for DHT, JPG and DAC.
    if (marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc) {
      return { height: view.getUint16(at + 5), width: view.getUint16(at + 7) };
    }
    if (marker === 0xd9 || marker === 0xda) return undefined; // the end, or the pixels
    at += 2 + view.getUint16(at + 2);
  }
  return undefined;
}

// drawable reports whether a picture is one and not too large.
export function drawable(data: Uint8Array): boolean {
  const size = jpegSize(data);
  return size !== undefined && size.width > 0 && size.height > 0 && size.width * size.height <= mostPixels;
}
