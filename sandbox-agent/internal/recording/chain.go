package recording

import "github.com/fairlead/fairlead/sandbox-agent/internal/redact"

// A chain masks the secrets of several sets in one output stream. Each set
// masks the output of the one before it.
type chain struct {
	streams []*redact.Stream
	bufs    [][]byte // the output of each
}

func newChain(sets []*redact.Set) *chain {
	c := &chain{bufs: make([][]byte, len(sets))}
	for _, set := range sets {
		c.streams = append(c.streams, set.NewStream())
	}
	return c
}

// write takes output and returns what may be released now, valid until the next
// call.
func (c *chain) write(p []byte) []byte {
	for i, s := range c.streams {
		c.bufs[i] = s.Write(c.bufs[i][:0], p)
		p = c.bufs[i]
	}
	return p
}

// flush ends the output and returns the rest of it.
func (c *chain) flush() (p []byte) {
	for i, s := range c.streams {
		c.bufs[i] = s.Flush(s.Write(c.bufs[i][:0], p))
		p = c.bufs[i]
	}
	return p
}

// maskText masks the secrets of several sets in a whole text.
func maskText(sets []*redact.Set, text []byte) []byte {
	for _, set := range sets {
		text = set.Mask(text)
	}
	return text
}
