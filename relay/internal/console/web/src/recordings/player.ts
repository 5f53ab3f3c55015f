// Plays recordings. It is loaded when the first one is played, since it is
// larger than the rest of the page.

import { create } from 'asciinema-player';
import { fontFamily, stillPreferred } from '../ui/theme.ts';

export interface Playing {
  focus(): void;
  dispose(): void;
}

// play shows an asciicast in host, which it fills.
export function play(asciicast: string, host: HTMLElement): Playing {
  const player = create({ data: asciicast }, host, {
    autoPlay: !stillPreferred.matches,
    preload: true,
    fit: 'both',
    controls: true,
    idleTimeLimit: 2,
    terminalFontFamily: fontFamily,
    theme: 'fairlead',
  });
  const wrapper = host.querySelector<HTMLElement>('.ap-wrapper');
  wrapper?.setAttribute('aria-label', 'Player: Space pauses, arrow keys seek');
  return { focus: () => wrapper?.focus(), dispose: () => player.dispose() };
}
