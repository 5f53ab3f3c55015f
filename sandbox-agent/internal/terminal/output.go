package terminal

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

// readBytes is the most output taken at once, which goes to a relay at once. Linux
// hands out 4 KiB; a device may join them.
const readBytes = protocol.MaxStreamWrite

// read moves output from the PTY of p to the log until there is no more. What it
// takes while p is not in front stays with it until p is.
func (t *Terminal) read(p *program) {
	buf := make([]byte, readBytes)
	var answers []byte
	for {
		n, err := p.Device.Read(buf)
		t.view.mu.Lock()
		for !t.view.display.Shows(p.out) {
			t.arbiter.StandBy(p.Program)
			t.view.mu.Unlock()
			p.AwaitTurn()
			t.view.mu.Lock()
		}
		var some bool
		answers, some = t.view.display.Write(answers[:0], buf[:n], err != nil && p == t.own)
		t.beginAnewIfDue(time.Now())
		wait := t.arbiter.Printed(p.Program, t.shown(), some, answers)
		t.view.mu.Unlock()
		switch {
		case err != nil && (errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed)):
			return
		case err != nil:
			t.log.Warn("reading a terminal failed", "error", err)
			return
		case wait:
			p.AwaitTurn()
		}
	}
}

// shown returns how the display stands. The caller holds view.mu.
func (t *Terminal) shown() arbiter.Shown {
	return arbiter.Shown{HoldsBack: t.view.display.HoldsBack(), Due: t.view.display.Due()}
}
