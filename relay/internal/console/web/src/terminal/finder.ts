// Finds text in a terminal, and marks every match.

import { SearchAddon } from '@xterm/addon-search';
import type { Terminal } from '@xterm/xterm';
import { matches, theme } from '../ui/theme.ts';
import type { Query } from './search.ts';

const mostMarked = 2_000;

export class Finder {
  readonly #addon = new SearchAddon({ highlightLimit: mostMarked });
  #how = '';

  // found is called with the match shown, counted from 0, and how many there
  // are; with -1 where there are too many.
  constructor(
    private readonly term: Terminal,
    found: (index: number, count: number) => void,
  ) {
    term.loadAddon(this.#addon);
    this.#addon.onDidChangeResults(({ resultIndex, resultCount }) => found(resultIndex, resultCount));
  }

  // find looks for the next match, or the one before with back; still: at the
  // match it is at, when the query has grown by a letter.
  find({ text, caseSensitive, regex }: Query, back: boolean, still: boolean): void {
    const how = `${caseSensitive} ${regex}`;
    if (how !== this.#how) this.#addon.clearDecorations(); // it looks anew for another text only
    this.#how = how;
    // The match is selected, while the focus is in the search bar.
    const { activeMatchBackground: found = '' } = matches();
    if (this.term.options.theme?.selectionInactiveBackground !== found) this.term.options.theme = { ...theme(), selectionInactiveBackground: found };
    const options = { caseSensitive, regex, incremental: still, decorations: matches() };
    if (back) this.#addon.findPrevious(text, options);
    else this.#addon.findNext(text, options);
  }

  end(): void {
    this.#addon.clearDecorations();
    this.term.clearSelection();
    this.term.options.theme = theme();
  }
}
