package shellapi

import (
	"fmt"
	"strings"
	"testing"
)

// TestSlowReader: weakness 15. What a client doesn't read is bounded by its bytes: it
// holds nobody up, and once it reads again it is shown the screen, not what it missed.
func TestSlowReader(t *testing.T) {
	const pieces, piece = 3200, 8 << 10 // more than all buffers take
	w := newWorld(t)
	slow, quick := w.user(), w.user()
	for _, c := range []*client{slow, quick} {
		c.send(claudeInit)
		c.send(`{"type":"input","data":"here"}`)
		c.output("here")
	}
	slow.output("here") // quick's
	for i := range pieces {
		end := fmt.Sprintf("<%d>", i)
		w.says(claudeShell, strings.Repeat("x", piece-len(end))+end)
		quick.output(end) // also who waits for each is never behind the slow one
	}
	w.says(claudeShell, "the end")
	quick.output("the end")
	read := 0
	for f := slow.next(); !strings.HasSuffix(f.Data, "the end") && !strings.HasSuffix(f.Data, "KEYFRAME"); f = slow.next() {
		read += len(f.Data)
	}
	if most := pieces * piece * 3 / 4; read > most {
		t.Errorf("%d bytes were kept for it", read)
	}
	t.Logf("it read %d bytes of %d", read, pieces*piece)
}
