package redact

import (
	"bytes"
	"encoding/base64"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	lowerHex = "0123456789abcdef"
	upperHex = "0123456789ABCDEF"
)

// An encoder makes the forms of secrets, one secret at a time.
type encoder struct {
	forms []form // of the current secret, without duplicates
	buf   []byte // the forms' bytes
	tmp   []byte
	open  int // how much of tmp reveals no more than HoldFrom-1 bytes of the secret
}

// A form is a secret in one encoding.
type form struct {
	text []byte // as a terminal shows it
	hold uint8  // this many bytes of it are held
}

// encode sets forms to the forms of secret, the plain one first.
func (e *encoder) encode(secret []byte) {
	e.forms, e.buf = e.forms[:0], e.buf[:0]
	e.addPlain(secret)
	e.base64(secret)
	e.dumps(secret)
	e.percent(secret)
	e.json(secret)
	e.shell(secret)
	e.escapes(secret)
}

// note records that tmp ends after that many bytes of the secret, with whatever
// precedes the next.
func (e *encoder) note(bytes int) {
	if bytes < HoldFrom {
		e.open = len(e.tmp)
	}
}

// add adds a form that note recorded. It is held from the first byte on that
// may reveal more than HoldFrom-1 bytes of the secret.
func (e *encoder) add(text []byte) {
	e.addFrom(text, len(visible(e.buf[len(e.buf):], text[:e.open]))+1)
}

// addPlain adds a form with at least one byte for each of the secret's, and
// holds it like the plain form.
func (e *encoder) addPlain(text []byte) { e.addFrom(text, HoldFrom) }

// addFrom adds a form that is held from hold bytes on, unless there is an equal
// one, or a terminal shows too little of it: what ended a sequence in the secret is
// escaped, or most of it stands in words that others have a part of.
func (e *encoder) addFrom(text []byte, hold int) {
	h := uint8(max(hold, HoldFrom))
	from := len(e.buf)
	e.buf = visible(e.buf, text)
	f := form{e.buf[from:len(e.buf):len(e.buf)], h}
	if len(f.text) < MinSecretBytes {
		e.buf = e.buf[:from]
		return
	}
	for i, other := range e.forms {
		if bytes.Equal(f.text, other.text) {
			e.forms[i].hold = min(other.hold, h)
			e.buf = e.buf[:from]
			return
		}
	}
	e.forms = append(e.forms, f)
}

// base64Hold is where four characters have revealed three bytes.
const base64Hold = 5

// base64 adds what stands in the base64 encoding of any text with the secret in
// it: the characters that depend on nothing else. Behind them comes one that
// holds its last bits; with what a padded encoding or a line feed puts there the
// form is a longer one.
func (e *encoder) base64(secret []byte) {
	var text []byte
	for phase := range 3 {
		text = append(append(text[:0], 0, 0)[:phase], secret...)
		from, to := (8*phase+5)/6, 8*len(text)/6
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			e.tmp = alphabet.AppendEncode(e.tmp[:0], text)
			e.addFrom(e.tmp[from:to], base64Hold)
			e.addFrom(e.tmp[from:], base64Hold)
		}
	}
}

// unreserved is what no URL encoder escapes; each of kept is what one of them
// leaves as well: net/url's QueryEscape, encodeURIComponent, a form's, Python's
// quote, net/url's PathEscape, encodeURI.
const unreserved = "-_."

var kept = []string{"~", "~!'()*", "*", "~/", "~$&+:=@", "~!'()*;,/?:@&=+$#"}

// percent adds the URL encodings.
func (e *encoder) percent(secret []byte) {
	for _, digits := range []string{lowerHex, upperHex} {
		e.escape(secret, digits, "%20", func(byte) bool { return false })
		if !special(secret, unreserved) {
			continue
		}
		for _, keep := range kept {
			plain := func(c byte) bool {
				return alphanumeric(c) || strings.IndexByte(unreserved, c) >= 0 || strings.IndexByte(keep, c) >= 0
			}
			e.escape(secret, digits, "%20", plain)
			e.escape(secret, digits, "+", plain)
		}
	}
}

func (e *encoder) escape(secret []byte, digits, space string, plain func(byte) bool) {
	e.tmp = e.tmp[:0]
	for i, c := range secret {
		e.note(i)
		switch {
		case c == ' ':
			e.tmp = append(e.tmp, space...)
		case plain(c):
			e.tmp = append(e.tmp, c)
		default:
			e.tmp = append(e.tmp, '%', digits[c>>4], digits[c&15])
		}
	}
	e.add(e.tmp)
}

// special reports whether the secret has characters other than letters, digits
// and those in plain.
func special(secret []byte, plain string) bool {
	for _, c := range secret {
		if !alphanumeric(c) && strings.IndexByte(plain, c) < 0 {
			return true
		}
	}
	return false
}

func alphanumeric(c byte) bool {
	return c-'0' < 10 || c|0x20-'a' < 26
}

// unquoted is what no encoder of JSON escapes.
const unquoted = "-_.!#$%()*+,:;=?@[]^`{|}~ "

// A jsonStyle says what an encoder of JSON escapes beyond the mandatory.
type jsonStyle struct {
	digits            string
	slash, html, wide bool // "/"; "<", ">", "&" and line separators; all but ASCII
	all               bool
}

// json adds the forms inside JSON strings.
func (e *encoder) json(secret []byte) {
	for _, digits := range []string{lowerHex, upperHex} {
		e.jsonString(secret, jsonStyle{digits: digits, all: true})
		if !special(secret, unquoted) {
			continue
		}
		for bits := range 8 {
			e.jsonString(secret, jsonStyle{digits: digits, slash: bits&1 != 0, html: bits&2 != 0, wide: bits&4 != 0})
		}
	}
}

func (e *encoder) jsonString(secret []byte, style jsonStyle) {
	e.tmp = e.tmp[:0]
	for i := 0; i < len(secret); {
		e.note(i)
		r, n := utf8.DecodeRune(secret[i:])
		e.tmp = style.append(e.tmp, r, secret[i:i+n])
		i += n
	}
	e.add(e.tmp)
}

// append appends the character r, whose UTF-8 is encoded.
func (j jsonStyle) append(dst []byte, r rune, encoded []byte) []byte {
	const short, letters = "\"\\\b\f\n\r\t", `"\bfnrt`
	if i := strings.IndexRune(short, r); i >= 0 && !j.all {
		return append(dst, '\\', letters[i])
	}
	switch {
	case j.all, r < ' ', j.wide && r >= del,
		j.html && (r == '<' || r == '>' || r == '&' || r == 0x2028 || r == 0x2029):
		if r1, r2 := utf16.EncodeRune(r); r > 0xffff {
			return j.unit(j.unit(dst, r1), r2)
		}
		return j.unit(dst, r)
	case j.slash && r == '/':
		return append(dst, `\/`...)
	}
	return append(dst, encoded...)
}

// unit appends one escaped unit of UTF-16.
func (j jsonStyle) unit(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', j.digits[r>>12&15], j.digits[r>>8&15], j.digits[r>>4&15], j.digits[r&15])
}

// shell adds the forms in which shells and Python quote the secret.
func (e *encoder) shell(secret []byte) {
	if !special(secret, unreserved) {
		return
	}
	e.addPlain(bytes.ReplaceAll(secret, []byte(`'`), []byte(`'\''`)))
	e.addPlain(bytes.ReplaceAll(secret, []byte(`'`), []byte(`'"'"'`)))
	e.backslash(secret, func(c byte) bool { return strings.IndexByte("\"$`\\", c) >= 0 })
	e.backslash(secret, func(c byte) bool { return strings.IndexByte("'\\\n\r\t", c) >= 0 })
	e.backslash(secret, func(c byte) bool {
		return c < 0x80 && !alphanumeric(c) && strings.IndexByte("-_./:=@%+\n\r", c) < 0
	})
	e.backslash(secret, func(c byte) bool {
		return c < 0x80 && !alphanumeric(c) && strings.IndexByte("-_./:=@%+,\n\r", c) < 0
	})
}

// backslash adds the secret with a backslash before its special bytes.
func (e *encoder) backslash(secret []byte, special func(byte) bool) {
	e.tmp = e.tmp[:0]
	for i, c := range secret {
		e.note(i)
		if special(c) {
			e.tmp = append(e.tmp, '\\')
			switch c {
			case '\n':
				c = 'n'
			case '\r':
				c = 'r'
			case '\t':
				c = 't'
			}
		}
		e.tmp = append(e.tmp, c)
	}
	e.add(e.tmp)
}
