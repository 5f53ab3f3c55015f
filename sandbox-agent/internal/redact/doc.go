// Package redact finds secrets in a stream of terminal output and masks them, in
// plain form and in the encodings that tools print them in.
//
// # What is found
//
// A [Set] holds each secret as it is and in these forms:
//
//   - base64, alone or anywhere within a longer encoded text (three phases), of
//     the standard and of the URL alphabet;
//   - hexadecimal digits in lower and upper case, in a row, in pairs between
//     colons or spaces, and each pair behind \x;
//   - URL encoding in lower and upper case, of every byte and as net/url, Python,
//     encodeURI, encodeURIComponent and forms do it, with %20 and + for a space;
//   - the inside of a JSON string, with \/, <, >, & and all but ASCII escaped or
//     not, and with every character as \u and four digits in either case;
//   - as shells quote it, in single, double or $” quotes or with backslashes.
//
// Not found are two encodings within one another (base64 of base64, JSON in a
// JSON string; a shell command in JSON), encodings that change the text (gzip,
// encryption), a mixture of digits in lower and upper case, and dumps with
// offsets or text between the digits. A program that means to show a secret always
// can; redaction is for those that don't.
//
// What a terminal doesn't show does not matter: C0 and C1 controls, DEL, escape and
// control sequences, whether complete or not, bytes that are no UTF-8, characters
// without width. So it doesn't matter either where lines are wrapped, be it by the
// terminal, by line feeds, or by a line editor, which writes a space and a
// carriage return at the right edge (or the next character, which is known only
// behind the first HoldFrom bytes, and not where that is doubled). A backspace takes the
// character before it back: one that is wrong within a secret may be erased, one
// that is right may be struck over by itself or an underscore. If two or more
// wrong ones follow one another, what is before them may be out already. Strings
// of OSC, DCS, APC, PM and SOS are texts of their own: secrets in them are masked,
// and what is printed goes on behind them. Text that is put together by moving the
// cursor is not found here; [Set.Find] is for the rows that result.
//
// A single byte from 0x80 to 0x9f that is no part of UTF-8 is a C1 control in a
// terminal with 8-bit controls and nothing in others: both are looked at.
//
// # What becomes of it
//
// Each visible character of a secret becomes one asterisk; sequences and controls
// between them stay, so the layout does. Of a base64 encoding up to one character
// at either end may stay that has bits of the secret and of its neighbour. Of
// secrets that overlap, all is masked.
//
// # What is held
//
// A [Stream] holds a beginning of HoldFrom or more bytes of a form until a
// character rules it out, the secret is complete, or the output ends; then it is
// masked. A beginning that is shorter is not held, so when the rest comes with
// another Write up to HoldFrom-1 bytes of a secret stay in clear. One character
// that rules it out is held as well, with what is before it: it may be erased, or
// be the space of a line editor; the next character decides. Nothing of a complete
// secret is held, though a longer one that begins with it is looked for.
//
// A Stream holds at most [Set.MaxBytes] and 64 KiB: if more sequences than that
// stand within a beginning, it is masked and let out ([Stream.Overruns] counts
// that). Incomplete characters, at most 3 bytes, are held until they are complete.
//
// # Work
//
// A byte that is near no secret costs a few nanoseconds, however many secrets there
// are. Output that is made to be bad costs time in proportion to the longest
// secret that repeats itself, or shares much with others.
//
// The package is pure: it knows no clock, does no I/O and starts no goroutine.
package redact
