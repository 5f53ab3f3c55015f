// Package screen is a terminal grid: a program's output in; what viewers see,
// answers to terminal queries, and exact keyframes out.
//
// The grid is that of xterm.js 6 with its unicode-graphemes addon, which is
// what viewers run: cell by cell, with the cursor, the modes, which rows
// continue the one above, and what a new size does to them all. So a keyframe
// puts a viewer that comes late where one stands that saw every byte.
//
// A [Screen] is pure: it knows no clock, does no I/O and starts no goroutine.
// What a program can make it hold is bounded, and so is the work per byte.
package screen
