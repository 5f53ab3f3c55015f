// Package redact finds secrets in a stream of terminal output and masks them, in
// plain form and in the encodings that tools print them in.
//
// # What is found
//
// A [Set] holds each secret as it is and in these forms:
//
//   - base64, alone or anywhere within a longer encoded text (three phases), of
//     the standard and of the URL alphabet;
//   - hexadecimal digits in lower and upper case: in a row, in pairs between colons
//     or spaces, each pair behind \x, and as C has bytes (0x4f, 0x63);
//   - of secrets up to 128 bytes, in groups of 2 bytes in either case and of 4 in
//     lower case, with a space between, wherever in a group they begin; and as the
//     words of od -x, without a first or last byte that shares its word with others,
//     which stays;
//   - URL encoding in lower and upper case, of every byte and as net/url, Python,
//     encodeURI, encodeURIComponent and forms do it, with %20 and + for a space;
//   - the inside of a JSON string, with \/, <, >, & and all but ASCII escaped or
//     not, and with every character as \u and four digits in either case;
//   - as shells quote it, in single, double or $” quotes or with backslashes;
//   - what is not ASCII as programs print it that have only that: each byte as \303
//     (printf %q, set, sed's l, git), as \xc3 or \xC3 (Python's bytes, C), as M-C
//     (cat -v) or as <C3> or <c3> (less, vim); each character as \u00e4 or
//     \U0001f600, or as \xe4 where that is enough (Python's ascii, Go); with
//     backslashes, and quotes of one kind or none, escaped.
//
// What a terminal doesn't show does not matter: C0 and C1 controls, DEL, escape and
// control sequences, whether complete or not, bytes that are no UTF-8. Neither do
// characters without width, be they in the secret or in the output: marks that
// combine with the one before, format characters and what else Unicode ignores by
// default. (So "e" and a combining accent is found where the secret has these two,
// or "e"; where it has one "é" it isn't.)
//
// It doesn't matter either where lines are wrapped: by the terminal, by line feeds,
// also with an indentation behind or a backslash before, or by a line editor. That
// writes a space and a carriage return at the right edge, or a space and an erasure
// of the rest of the line, or the next character and a carriage return. The last,
// and an indentation, are known only behind the first HoldFrom bytes. Where the
// secret, or two forms of it, could also go on with such a space, backslash or
// doubled character, it may not be found.
//
// A backspace takes the character before it back: one that is wrong within a secret
// may be erased, one that is right may be struck over by itself or an underscore. If
// two or more wrong ones follow one another, what is before them may be out already.
//
// Strings of OSC, DCS, APC, PM and SOS are texts of their own: secrets in them are
// masked, and what is printed goes on behind them.
//
// A single byte from 0x80 to 0x9f that is no part of UTF-8 is a C1 control in a
// terminal with 8-bit controls and nothing in others: both are looked at.
//
// # What is not found
//
//   - Dumps with offsets (xxd, hexdump, od) of a secret that goes on in another of
//     their lines: neither the digits nor the column of characters beside them. What
//     stands in one line is found, which has room for 16 bytes.
//   - Lines with anything but spaces before what goes on: the numbers of less -N and
//     cat -n, the > of mail and diff, the frames of split windows in vim and tmux.
//   - Text that is put together by moving the cursor or that a program draws out of
//     order. [Set.Find] is for the rows that result.
//   - Parts of a secret (cut, head -c, a pager's horizontal scrolling). Its
//     beginning is held, and leaves when what follows rules it out; a middle or an
//     end is nothing to look for.
//   - Two encodings within one another: base64 of base64, JSON in a JSON string, a
//     shell command in JSON, a URL in base64 of which the secret was escaped.
//   - Other encodings: base32, quoted-printable, HTML entities, UTF-16, decimal or
//     octal dumps, digits in lower and upper case mixed, another normal form of
//     Unicode, another case; reversed, with other characters between, compressed
//     or encrypted.
//
// A program that means to show a secret always can; redaction is for those that
// don't.
//
// # What becomes of it
//
// Each visible character of a secret becomes one asterisk, and characters without
// width go; sequences and controls between them stay, so the layout does, but for
// wide characters. Of a base64 encoding up to one character at either end may stay
// that has bits of the secret and of its neighbour. Of secrets that overlap, all is
// masked.
//
// # What is held
//
// A [Stream] holds the beginning of a form until a character rules it out, the
// secret is complete, or the output ends; then it is masked. It begins to once more
// than HoldFrom-1 bytes of the secret are there: behind the third byte of the plain
// form, the 6th digit in a row, the 4th character of base64, the 9th where every
// byte is percent-encoded. Nothing is held before, so when the rest comes with
// another Write that many stay in clear.
//
// A beginning that is ruled out leaves, as it is no secret: that is what becomes of
// one that was cut. From 8 bytes of a form on, the one character that rules it out
// is held as well, with what is before it: it may be erased, or be the space of a
// line editor; the next character decides. With fewer, both leave at once. If that
// character is taken back all the same and the rest follows, the rest is masked, but
// up to 7 bytes are out, if they came with another Write.
//
// Nothing of a complete secret is held, though a longer one that begins with it is
// looked for.
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
