// Draws a terminal with WebGL where that is fast, and with the DOM where it
// isn't, or stops working.

import { WebglAddon } from '@xterm/addon-webgl';
import type { Terminal } from '@xterm/xterm';
import { browser } from '../ui/storage.ts';

// fast reports whether WebGL is drawn by hardware: in software it is slower
// than the DOM. The preference "renderer" overrides the answer.
function fast(): boolean {
  const wanted = browser.get('renderer');
  if (wanted !== null) return wanted === 'webgl';
  const context = document.createElement('canvas').getContext('webgl2', { failIfMajorPerformanceCaveat: true });
  if (context === null) return false;
  const about = context.getExtension('WEBGL_debug_renderer_info');
  const name = String(context.getParameter(about?.UNMASKED_RENDERER_WEBGL ?? context.RENDERER));
  context.getExtension('WEBGL_lose_context')?.loseContext();
  return !/swiftshader|llvmpipe|softpipe|software|basic render/i.test(name);
}

let usable: boolean | undefined;

// A browser has few WebGL contexts, so that only terminals that are shown hold
// one.
export class Renderer {
  #addon: WebglAddon | undefined;
  #lost = false;

  constructor(private readonly term: Terminal) {}

  get webgl(): boolean {
    return this.#addon !== undefined;
  }

  show(shown: boolean): void {
    if (!shown) return this.#drop();
    usable ??= fast();
    if (!usable || this.#lost || this.#addon !== undefined) return;
    try {
      const addon = new WebglAddon();
      addon.onContextLoss(() => {
        this.#lost = true;
        this.#drop();
      });
      this.term.loadAddon(addon);
      this.#addon = addon;
    } catch {
      usable = false; // the DOM renderer goes on
    }
  }

  #drop(): void {
    this.#addon?.dispose();
    this.#addon = undefined;
  }
}
