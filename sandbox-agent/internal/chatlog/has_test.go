package chatlog

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestHas: a log knows whether it has a command's message, and when it can't know.
func TestHas(t *testing.T) {
	store, err := Open(Options{Dir: t.TempDir(), Bytes: 9 << 20})
	must(t, err)
	defer func() { must(t, store.Close()) }()
	log, err := store.Log("c-1")
	must(t, err)
	now := time.UnixMilli(1_795_000_000_000)
	event := func(role, text string, command protocol.CommandID) {
		t.Helper()
		must(t, log.Append(false, &protocol.ChatEvent{
			Kind: protocol.ChatText, Role: role, Content: &text, CommandID: command, Timestamp: now.UTC().Format(time.RFC3339Nano),
		}))
	}
	check := func(command protocol.CommandID, issued time.Time, has, known bool) {
		t.Helper()
		if h, k := log.Has(command, issued); h != has || k != known {
			t.Errorf("%s: %t, known %t", command, h, k)
		}
	}
	check("cmd_1", now, false, true) // an empty log
	event("user", "cmd_2 is only said", "cmd_1")
	event("assistant", "an answer", "cmd_3")
	check("cmd_1", now, true, true)
	check("cmd_2", now, false, true)
	check("cmd_3", now, false, true)
	log.Live(true)
	for log.Position().First == 1 {
		event("assistant", strings.Repeat("x", 600_000), "")
	}
	check("cmd_1", now.Add(-time.Second), false, false) // it may have been dropped
	check("cmd_1", now.Add(time.Hour), false, true)     // it came long after what there is
}
