// Finds text in a terminal, and marks every match.

import { SearchAddon } from '@xterm/addon-search';
import type { IMarker, Terminal } from '@xterm/xterm';
import { matches, theme } from '../ui/theme.ts';
import type { Query } from './search.ts';

const mostMarked = 2_000;

// So many matches may be in one line for the same one to be found again.
const mostInLine = 32;

export class Finder {
  readonly #addon = new SearchAddon({ highlightLimit: mostMarked });
  #query: Query | undefined; // what is looked for
  #how = '';
  #index = -1; // of the match that is shown
  #at: IMarker | undefined; // where that is

  // found is called with the match shown, counted from 0, and how many there
  // are; with -1 where there are too many.
  constructor(
    private readonly term: Terminal,
    found: (index: number, count: number) => void,
  ) {
    term.loadAddon(this.#addon);
    this.#addon.onDidChangeResults(({ resultIndex, resultCount }) => {
      this.#index = resultIndex;
      this.#mark();
      found(resultIndex, resultCount);
    });
    term.onResize(() => this.#again());
  }

  // find looks for the next match, or the one before with back; still: at the
  // match it is at, when the query has grown by a letter.
  find(query: Query, back: boolean, still: boolean): void {
    const { text, caseSensitive, regex } = query;
    this.#query = query;
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
    this.#query = undefined;
    this.#at?.dispose();
    this.#addon.clearDecorations();
    this.term.clearSelection();
    this.term.options.theme = theme();
  }

  // mark notes where the match is: another size moves its line.
  #mark(): void {
    this.#at?.dispose();
    const { baseY, cursorY } = this.term.buffer.active;
    const line = this.term.getSelectionPosition()?.start.y;
    this.#at = line === undefined ? undefined : this.term.registerMarker(line - baseY - cursorY);
  }

  // again looks for the same match once the terminal has another size: nothing is
  // selected then, and the addon would go on from the end.
  #again(): void {
    const [query, index, line] = [this.#query, this.#index, this.#at?.line ?? -1];
    if (query === undefined || index < 0 || line < 0) return;
    this.#addon.clearDecorations();
    this.term.select(0, line, 1);
    for (let i = 0; i < mostInLine && (i === 0 || (this.#index >= 0 && this.#index < index)); i++) this.find(query, false, i === 0);
  }
}
