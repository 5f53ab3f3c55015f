// Package protocol defines what fairlead's programs exchange: ids, limits,
// error kinds, the frame codec and every message. It performs no I/O beyond the
// caller's [io.Reader] or [io.Writer], reads no clock and starts no goroutine;
// it imports the standard library only.
//
// README.md beside this file is the wire specification. A test compares the
// tables there with the constants here, so neither can drift.
package protocol
