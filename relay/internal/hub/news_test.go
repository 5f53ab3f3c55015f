package hub

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// However often the terminals of a session change, viewers are told at once, once
// more for all that follow within a second, and of the latest.
func TestFound18NewsAreFew(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.join(alice, at(0))
	a := w.attached()
	const changes = 200
	for i := range changes {
		a.say(protocol.TerminalsChanged{At: int64(i + 1)})
	}
	told := 0
	for {
		var m protocol.ListChanged
		x.until(protocol.ServerTerminals).decode(t, &m)
		if told++; told == 1 && m.Timestamp != 1 {
			t.Errorf("not told at once but of %d", m.Timestamp)
		}
		if m.Timestamp == changes {
			break
		}
	}
	if told > changes/10 { // a busy machine takes more than a second for them
		t.Errorf("told %d times", told)
	}
}
