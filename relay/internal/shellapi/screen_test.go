package shellapi

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// translated returns what a client gets of a batch: the frames' payloads.
func translated(t testing.TB, s *screen, batch net.Buffers) (payloads []string) {
	t.Helper()
	for _, b := range s.translate(batch) {
		for len(b) > 0 {
			payload, rest, err := relaytest.Frame(b)
			if err != nil {
				t.Fatal(err)
			}
			payloads, b = append(payloads, string(payload)), rest
		}
	}
	return payloads
}

// FuzzScreen: whatever a terminal prints, however the hub's frames are cut, its
// client gets it in frames that are JSON, without torn characters.
func FuzzScreen(f *testing.F) {
	f.Add([]byte("é€😀\x1b[1m\"\\\x00\x7f\xff\xc3"), uint8(1), uint8(3))
	f.Add([]byte(strings.Repeat("😀", 40_000)), uint8(200), uint8(255))
	f.Fuzz(func(t *testing.T, printed []byte, size, cut uint8) {
		var hub []byte
		for at := 0; at < len(printed); {
			n := min(int(size)+1, len(printed)-at)
			hub = replay.AppendBinaryFrame(hub, printed[at:at+n])
			if at%3 == 0 {
				hub = replay.AppendTextFrame(hub, protocol.EncodeServerMessage(protocol.Presence{Count: 1}))
			}
			at += n
		}
		hub = replay.AppendTextFrame(hub, protocol.EncodeServerMessage(protocol.PTYClosed{ExitCode: 5}))
		s := &screen{told: map[string]bool{}}
		var got strings.Builder
		for at := 0; at < len(hub); {
			n := min(int(cut)+1, len(hub)-at)
			for _, payload := range translated(t, s, net.Buffers{hub[at : at+n]}) {
				var m frame
				if err := json.Unmarshal([]byte(payload), &m); err != nil || m.Type != "output" || !utf8.ValidString(payload) || len(m.Data) > 3*maxOutput {
					t.Fatalf("%q: %v", payload, err)
				}
				got.WriteString(m.Data)
			}
			at += n
		}
		if want := string([]rune(string(printed))) + exitText(protocol.PTYClosed{ExitCode: 5}); got.String() != want {
			t.Errorf("%q, want %q", got.String(), want)
		}
	})
}

// TestMessages: what a hub tells viewers, as seed 002's client is told.
func TestMessages(t *testing.T) {
	s := &screen{told: map[string]bool{}}
	for _, row := range []struct {
		message protocol.ServerMessage
		want    string
	}{
		{protocol.ControlState{}, ""},
		{protocol.Waiting{Reason: protocol.WaitingSandbox}, ""},
		{protocol.InputDropped{Reason: protocol.RefusedNotController}, `{"type":"error","message":"` + refusedText(protocol.RefusedNotController) + `"}`},
		{protocol.ErrorMessage{Name: "X", Message: "so"}, `{"type":"error","message":"so"}`},
		{protocol.Address{URL: "https://e.com/"}, `{"type":"auth_url","url":"https://e.com/","autoOpen":false}`},
		{protocol.Address{URL: "https://e.com/", AutoOpen: true}, ""},
		{protocol.PTYClosed{ExitCode: -1, Signal: "SIGTERM"}, `{"type":"output","data":"\r\n\u001b[33mProcess exited with code 143 (SIGTERM)\u001b[0m\r\n"}`},
	} {
		got := translated(t, s, net.Buffers{replay.AppendTextFrame(nil, protocol.EncodeServerMessage(row.message))})
		if strings.Join(got, " ") != row.want {
			t.Errorf("%+v: %s, want %s", row.message, got, row.want)
		}
	}
}
