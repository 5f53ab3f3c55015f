package linkfinder

// Window is how far back, in characters without escape sequences, a hint still
// belongs to an address.
const Window = 32768

// hintTexts are what programs say where they want an address to be opened, in
// lower case and with single spaces.
var hintTexts = []string{
	"browser didn't open",
	"open this url",
	"continue in your browser",
	"press enter to open",
	"open_url:",
}

// longest bounds them and the schemes, in bytes.
const longest = 32

// hints remember where a hint stood. Where a program has wrapped it doesn't
// matter.
type hints struct {
	recent [2 * longest]byte // the last characters; the latest are at its end
	n      int
	seen   uint64 // characters, with all spaces
	last   uint64 // where the latest hint ended; 0: there was none
}

// read takes text.
func (h *hints) read(text []byte) {
	for _, c := range text {
		h.next(c)
	}
}

// next takes a character.
func (h *hints) next(c byte) {
	if c&0xc0 != 0x80 {
		h.seen++
	}
	switch {
	case c == '\n' || c == lineBreak:
		c = ' '
	case 'A' <= c && c <= 'Z':
		c += 'a' - 'A'
	}
	if c == ' ' && h.n > 0 && h.recent[h.n-1] == ' ' {
		return
	}
	if h.n == len(h.recent) {
		h.n = copy(h.recent[:], h.recent[longest:])
	}
	h.recent[h.n] = c
	h.n++
	switch c {
	case 'n', 'l', 'r', ':':
		if h.n > 1 {
			h.look()
		}
	case 0x99: // ends a typographic apostrophe
		if h.endsWith("\u2019") {
			h.n -= len("\u2019") - 1
			h.recent[h.n-1] = '\''
		}
	}
}

// look notes a hint that ends here.
func (h *hints) look() {
	before := h.recent[h.n-2]
	for _, text := range hintTexts {
		if text[len(text)-2] == before && h.endsWith(text) {
			h.last = h.seen
			return
		}
	}
}

func (h *hints) endsWith(text string) bool {
	return h.n >= len(text) && string(h.recent[h.n-len(text):h.n]) == text
}

// near reports whether a hint stands within the window.
func (h *hints) near() bool { return h.last > 0 && h.seen-h.last <= Window }

// scheme returns the scheme that has just been read, if any.
func (h *hints) scheme() string {
	if h.n == 0 || h.recent[h.n-1] != '/' {
		return ""
	}
	for _, s := range []string{"https://", "http://"} {
		if h.endsWith(s) {
			return s
		}
	}
	return ""
}
