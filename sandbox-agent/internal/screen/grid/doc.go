// Package grid holds what a terminal shows, cell by cell as xterm.js does, and
// the operations that change it.
//
// A [Grid] has two screens, each a [Buffer] of [Row]s of [Cell]s with what
// scrolled off its top, and what decides about the next character: cursor, pen,
// modes, character sets. Cells are small: what few of them have, several
// characters, underlines of another look and hyperlinks, stands in tables and
// cells hold its number. A table that is full is swept.
package grid
