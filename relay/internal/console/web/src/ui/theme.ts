// The terminal's colours and font. Both palettes keep at least 4.5:1 between
// text and background; xterm.js adjusts what programs choose beyond them.

import type { ISearchDecorationOptions } from '@xterm/addon-search';
import type { ITerminalOptions, ITheme } from '@xterm/xterm';
import { chosen, mostPx } from './typesize.ts';

const dark: ITheme = {
  background: '#0c1014',
  foreground: '#d6dde6',
  cursor: '#62d0be',
  cursorAccent: '#0c1014',
  selectionBackground: '#2b4d5a',
  selectionInactiveBackground: '#26343d',
  scrollbarSliderBackground: '#8b98a633',
  scrollbarSliderHoverBackground: '#8b98a655',
  scrollbarSliderActiveBackground: '#8b98a677',
  black: '#20272f',
  red: '#f2777a',
  green: '#8fc77f',
  yellow: '#e2bd68',
  blue: '#76a9f0',
  magenta: '#c792e0',
  cyan: '#62d0be',
  white: '#c9d1da',
  brightBlack: '#77838f',
  brightRed: '#ff9a98',
  brightGreen: '#aee09f',
  brightYellow: '#f5d68c',
  brightBlue: '#9cc4ff',
  brightMagenta: '#deb3f2',
  brightCyan: '#8ee6d7',
  brightWhite: '#f3f6f9',
};

const light: ITheme = {
  background: '#ffffff',
  foreground: '#1d2731',
  cursor: '#0b7568',
  cursorAccent: '#ffffff',
  selectionBackground: '#bfe3dd',
  selectionInactiveBackground: '#dfe7ea',
  scrollbarSliderBackground: '#5b687733',
  scrollbarSliderHoverBackground: '#5b687755',
  scrollbarSliderActiveBackground: '#5b687777',
  black: '#1d2731',
  red: '#b3261e',
  green: '#2c6e2f',
  yellow: '#85600a',
  blue: '#1f5fb8',
  magenta: '#8a3ba8',
  cyan: '#0b7568',
  white: '#5c6773',
  brightBlack: '#65707c',
  brightRed: '#c4342b',
  brightGreen: '#357a38',
  brightYellow: '#8f6a12',
  brightBlue: '#2a6fd0',
  brightMagenta: '#9a4ab8',
  brightCyan: '#0f7f72',
  brightWhite: '#4a545e',
};

export const lightPreferred = window.matchMedia('(prefers-color-scheme: light)');
export const stillPreferred = window.matchMedia('(prefers-reduced-motion: reduce)');
export const touch = window.matchMedia('(pointer: coarse)');

export const theme = (): ITheme => (lightPreferred.matches ? light : dark);

export const fontFamily =
  'ui-monospace, "SF Mono", "Cascadia Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace';

// Sizes in CSS pixels: what a controller gets, what that is unless the person
// chose otherwise, and how far a viewer's is changed to show the whole of
// somebody else's screen.
export function font(): { base: number; normal: number; least: number; fitted: number; most: number } {
  const normal = touch.matches ? 13 : 14;
  const fitted = touch.matches ? 13 : 17;
  return { base: chosen() ?? normal, normal, least: touch.matches ? 7 : 6, fitted, most: mostPx };
}

// looks are the options that every terminal on the page shares.
export const looks = (): ITerminalOptions => ({
  allowProposedApi: true, // the parser and unicode versions
  fontFamily,
  fontSize: font().base,
  macOptionIsMeta: true,
  minimumContrastRatio: 4.5,
  rightClickSelectsWord: false,
  smoothScrollDuration: 0,
  theme: theme(),
});

// matches are the colours of what a search finds.
export const matches = (): ISearchDecorationOptions =>
  lightPreferred.matches
    ? { matchBackground: '#ffe9a8', activeMatchBackground: '#ffc53d', matchOverviewRuler: '#c99700', activeMatchColorOverviewRuler: '#805600' }
    : { matchBackground: '#4d4220', activeMatchBackground: '#8a6d1d', matchOverviewRuler: '#c9a44c', activeMatchColorOverviewRuler: '#e8bf66' };
