package op

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestContinued: who goes on with a conversation in a terminal names nothing to
// run, and must be allowed to chat and to approve.
func TestContinued(t *testing.T) {
	for text, good := range map[string]bool{
		`{"kind":"pty.create","conversation":"c-1","cols":80,"rows":24,"record":true}`: true,
		`{"kind":"pty.create","conversation":"c-1","command":"claude"}`:                false,
		`{"kind":"pty.create","conversation":"c-1","args":["--resume"]}`:               false,
		`{"kind":"pty.create","conversation":"c-1","dir":"project"}`:                   false,
		`{"kind":"pty.create","conversation":"c-1","egress":false}`:                    false,
		`{"kind":"pty.create","conversation":"../c"}`:                                  false,
	} {
		_, body, err := Decode(json.RawMessage(text))
		if err == nil {
			err = body.Check()
		}
		if (err == nil) != good || err != nil && protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, tt := range []struct {
		create PTYCreate
		needs  []protocol.Capability
	}{
		{PTYCreate{}, nil},
		{PTYCreate{Record: true}, []protocol.Capability{protocol.CapRecord}},
		{PTYCreate{Conversation: "c"}, []protocol.Capability{protocol.CapChat, protocol.CapApprove}},
		{PTYCreate{Conversation: "c", Record: true}, []protocol.Capability{protocol.CapRecord, protocol.CapChat, protocol.CapApprove}},
	} {
		if needs, err := tt.create.AskedBy("usr_a"); err != nil || !slices.Equal(needs, tt.needs) {
			t.Errorf("%+v needs %v, %v", tt.create, needs, err)
		}
	}
}
