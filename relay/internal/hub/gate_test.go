package hub

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// TestFound22TheLinkIsThereBeforeTheWord: who hears that the sandbox is back
// sends again what was refused, at once, and nobody would tell it to do so again.
func TestFound22TheLinkIsThereBeforeTheWord(t *testing.T) {
	e := newExecuting(t)
	in := e.h.typing
	in.Disconnect()
	e.v.Type(t.Context(), []byte("x"))
	e.quiet()
	in.Expect(e.link)
	e.h.step(turn.Reattached{Opened: protocol.TerminalOpened{Lease: held(3, 2)}}) // tells
	e.v.Type(t.Context(), []byte("y"))
	if got := e.inputs(); len(got) != 1 || string(got[0].Bytes) != "y" {
		t.Errorf("passed on: %+v", got)
	}
}
