// Package screen interprets what a terminal's program prints: its output in; what
// viewers see, answers to terminal queries, and exact keyframes out.
//
// What is shown stands in package grid, which knows nothing of escape sequences;
// package keyframe writes those that rebuild it. The grid is that of xterm.js 6
// with its unicode-graphemes addon, which is what viewers run: cell by cell, with
// the cursor, the modes, which rows continue the one above, and what a new size
// does to them all. So a keyframe puts a viewer that comes late where one stands
// that saw every byte.
//
// What viewers get is the output without queries. Beyond that it differs only
// where xterm.js would fail, run out of memory or take minutes (see spare.go):
// a few sequences become others of the same effect, and what would make one
// cell or one string too long is left out. The grid follows what viewers get.
//
// Not equal, after a change of size, are lines of text longer than the history
// that is held. Keyframes can't tell what no sequence says; see
// [Screen.AppendKeyframe].
//
// A [Screen] is pure: it knows no clock, does no I/O and starts no goroutine.
// What a program can make it hold is bounded, and so is the work per byte.
package screen
