package linkfinder

import (
	"bytes"
	"net"
	"net/url"
	"strings"
	"unicode"
)

// MaxBytes bounds an address. Longer ones are none.
const MaxBytes = 4096

// A scanner finds addresses in text without escape sequences, also such as a
// program has broken into lines.
type scanner struct {
	phase phase
	url   []byte // as far as it is known
	more  []byte // of the next line, which may continue it
}

type phase uint8

const (
	outside phase = iota
	inside        // an address
	padding       // behind it, where only a new line may follow
	opening       // the next line has nothing but spaces yet
	joining       // it has what may continue the address
	closing       // and then spaces, where only a new line may follow
	tooLong       // inside an address that is too long
)

// next takes a character. scheme is one that ends with it. whole are addresses that
// have ended, valid until the next call; grew: there is more of one that hasn't.
func (s *scanner) next(c byte, scheme string) (grew bool, whole [][]byte) {
	switch s.phase {
	case outside:
		if scheme != "" {
			s.phase, s.url = inside, append(s.url[:0], scheme...)
			return true, nil
		}
		return false, nil
	case inside:
		return s.inAddress(c)
	case tooLong:
		if !addressByte(c) {
			s.phase = outside
		}
		return false, nil
	case padding:
		switch c {
		case ' ':
			return false, nil
		case '\n':
			s.phase, s.more = opening, s.more[:0]
			return false, nil
		}
		return false, s.end(c)
	}
	return s.inNextLine(c)
}

// inAddress takes a character of an address, or the one behind it.
func (s *scanner) inAddress(c byte) (grew bool, whole [][]byte) {
	switch {
	case addressByte(c):
		s.url = append(s.url, c)
		if len(s.url) > MaxBytes {
			s.phase = tooLong
			return false, nil
		}
		return true, nil
	case c == '\n':
		s.phase, s.more = opening, s.more[:0]
	case c == ' ':
		s.phase = padding
	default:
		return false, s.end(c)
	}
	return false, nil
}

// inNextLine takes a character of a line behind that of an address.
func (s *scanner) inNextLine(c byte) (grew bool, whole [][]byte) {
	switch {
	case c == ' ' && s.phase == joining:
		s.phase = closing
	case c == ' ':
	case c == '\n' && s.phase != opening && joins(s.more):
		s.url = append(s.url, s.more...)
		s.phase, s.more = opening, s.more[:0]
		return true, nil
	case c != '\n' && s.phase != closing && joinByte(c) && len(s.url)+len(s.more) < MaxBytes:
		s.phase = joining
		s.more = append(s.more, c)
		return true, nil
	default:
		return false, s.end(c)
	}
	return false, nil
}

// end ends the address before c, which doesn't belong to it. There may be another
// one in the line that was taken for its continuation.
func (s *scanner) end(c byte) (whole [][]byte) {
	whole = append(whole, bytes.Clone(s.url))
	closed := s.phase == closing
	at := schemeIn(s.more)
	if at < 0 {
		s.phase, s.more = outside, s.more[:0]
		return whole
	}
	s.url = append(s.url[:0], s.more[at:]...)
	s.phase, s.more = inside, s.more[:0]
	if closed {
		s.phase = padding
	}
	_, also := s.next(c, "")
	return append(whole, also...)
}

// unfinished returns the address that hasn't ended yet, as it would if nothing came
// any more. It is valid until the next call.
func (s *scanner) unfinished() []byte {
	switch s.phase {
	case outside, tooLong:
		return nil
	case joining: // behind a space there is a prompt, rather
		if joins(s.more) {
			return append(s.url[:len(s.url):len(s.url)], s.more...)
		}
	}
	return s.url
}

// schemeIn returns where an address begins in a line, −1 if none does.
func schemeIn(line []byte) int {
	lower := bytes.ToLower(line)
	at, plain := bytes.Index(lower, []byte("https://")), bytes.Index(lower, []byte("http://"))
	if at < 0 || plain >= 0 && plain < at {
		return plain
	}
	return at
}

// joins reports whether a line continues the address above it: not if another
// address is in it, nor if it reads like a word of its own or a ruler.
func joins(line []byte) bool {
	return schemeIn(line) < 0 && !aWord(line) &&
		bytes.ContainsFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// aWord reports whether a line is a word as sentences begin or end with, such as
// "Waiting..." or "code:".
func aWord(line []byte) bool {
	letters := bytes.TrimRight(line, trailing+".")
	for i, b := range letters {
		if lower := 'a' <= b && b <= 'z'; !lower && (i > 0 || b < 'A' || b > 'Z') {
			return false
		}
	}
	capital := len(letters) > 1 && letters[0] <= 'Z'
	return capital || len(letters) < len(line)
}

// addressByte reports whether b may be in an address.
func addressByte(b byte) bool {
	return b > ' ' && b < 0x7f && strings.IndexByte("<>\"'`\\", b) < 0
}

// joinByte reports whether b may be in a line that continues an address.
func joinByte(b byte) bool {
	return addressByte(b) && strings.IndexByte("{}|^", b) < 0
}

// trailing is what ends sentences rather than addresses.
const trailing = ")]}>.,;:!?"

// Normalize returns an address as it is compared: without what only ends a
// sentence, with scheme and host in lower case, and without a port that goes
// without saying. It fails for what isn't an address of the web, or names a user.
func Normalize(raw string) (string, bool) {
	u, err := url.Parse(strings.TrimRight(raw, trailing))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return "", false
	}
	u.Host = strings.ToLower(u.Host)
	if host, port, err := net.SplitHostPort(u.Host); err == nil && (port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80") {
		if u.Host = host; strings.Contains(host, ":") {
			u.Host = "[" + host + "]"
		}
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return u.String(), true
}
