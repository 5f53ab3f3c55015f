package panelapi

import (
	"bytes"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// A cookie is good for half an hour and a token for half a minute, neither beyond the
// grant; one person's take nobody else's place.
func TestPassesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s passes
		give := func(user protocol.UserID, life time.Duration) secrets {
			t.Helper()
			out, _, err := s.issue(pass{grant: &jws.Grant{Subject: user, ExpiresAt: time.Now().Add(life).Unix()}})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		good := func(with presented) bool { _, err := s.redeem(with); return err == nil }
		a, b, c := give("usr_a", time.Hour), give("usr_a", time.Hour), give("usr_a", time.Minute)
		other := give("usr_b", time.Hour)
		for range 3 * maxPassesPerPerson {
			give("usr_c", time.Hour)
		}
		time.Sleep(protocol.TicketTTL)
		if good(presented{token: a.token, tokens: true}) {
			t.Error("an old token")
		}
		if good(presented{token: a.token, tokens: true, cookie: a.cookie}) || good(presented{tokens: true, cookie: a.cookie}) {
			t.Error("a cookie made up for a token")
		}
		if !good(presented{cookie: a.cookie}) || good(presented{cookie: a.cookie}) {
			t.Error("the cookie beside it, once")
		}
		time.Sleep(30 * time.Second)
		if good(presented{cookie: c.cookie}) {
			t.Error("beyond its grant")
		}
		time.Sleep(protocol.CookieTTL)
		if good(presented{cookie: b.cookie}) || good(presented{cookie: other.cookie}) || good(presented{}) {
			t.Error("old cookies")
		}
		if _, _, err := s.issue(pass{grant: &jws.Grant{ExpiresAt: time.Now().Unix()}}); protocol.KindOf(err) != protocol.KindExpired {
			t.Error(err)
		}
	})
}

// A relay's bound holds, and what has expired gives way to what is new.
func TestPassesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s passes
		issue := func(i int) error {
			user := protocol.UserID("usr_" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)))
			_, _, err := s.issue(pass{grant: &jws.Grant{Subject: user, ExpiresAt: time.Now().Add(time.Hour).Unix()}})
			return err
		}
		for i := range maxPasses {
			if err := issue(i); err != nil {
				t.Fatal(i, err)
			}
		}
		if err := issue(maxPasses); protocol.KindOf(err) != protocol.KindUnavailable || len(s.byCookie) != maxPasses {
			t.Error(err)
		}
		time.Sleep(protocol.CookieTTL)
		if err := issue(0); err != nil || len(s.byCookie) != 1 || len(s.byToken) != 1 || len(s.byPerson) != 1 {
			t.Errorf("%v, %d left", err, len(s.byCookie))
		}
	})
}

// A recorder is a wire that remembers.
type recorder struct {
	wrote  []byte
	code   int
	reason string
}

func (r *recorder) WriteFrames(frames net.Buffers) error {
	for _, b := range frames {
		r.wrote = append(r.wrote, b...)
	}
	return nil
}
func (*recorder) Ping() error                     { return nil }
func (*recorder) LastHeard() time.Time            { return time.Time{} }
func (r *recorder) Close(code int, reason string) { r.code, r.reason = code, reason }

// Output passes byte for byte, and what the hub says in words does not, however its
// frames are cut into pieces.
func FuzzFace(f *testing.F) {
	f.Add([]byte("\x05hello\x80text\xff"), uint16(3))
	f.Add(bytes.Repeat([]byte{0x7f}, 300), uint16(1))
	f.Fuzz(func(t *testing.T, script []byte, cut uint16) {
		var in, want []byte
		for len(script) > 0 {
			n := min(int(script[0]&0x7f)*9, len(script)-1)
			body := script[1 : 1+n]
			if script[0]&0x80 != 0 {
				in = replay.AppendTextFrame(in, protocol.EncodeServerMessage(protocol.ControlState{You: "usr_a"}))
			} else {
				in, want = replay.AppendBinaryFrame(in, body), replay.AppendBinaryFrame(want, body)
			}
			script = script[1+n:]
		}
		var frames net.Buffers
		whole := bytes.Clone(in)
		for len(in) > 0 {
			n := min(int(cut)+1, len(in))
			frames = append(frames, in[:n:n])
			in = in[n:]
			cut = cut*31 + 7
		}
		wire := &recorder{}
		face := &face{wire: wire}
		if err := face.WriteFrames(frames); err != nil || !bytes.Equal(wire.wrote, want) {
			t.Errorf("%q of %q, want %q", wire.wrote, whole, want)
		}
		wire.wrote = nil
		if face.WriteFrames(net.Buffers{whole}); !bytes.Equal(wire.wrote, want) {
			t.Errorf("in one piece: %q of %q, want %q", wire.wrote, whole, want)
		}
	})
}

// Whatever a page sends, what is understood of it is in bounds.
func FuzzDecodeFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"resize","cols":80,"rows":24}`, `{"type":"resize","cols":1e400,"rows":-1}`, `{"type":"tabSwitch","tabId":1.5,"url":"u","title":"t"}`,
		`{"type":"tabState","active":{"tabId":1}}`, `{"type":"ping","ts":1}`, `{"type":"ping","ts":{}}`, `{"type":"start"}`, `{"type":"reauth","grant":"g"}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := decodeFrame(data)
		switch {
		case !ok:
		case got.Type == frameResize && (got.Cols < minSide || got.Cols > protocol.MaxCols || got.Rows < minSide || got.Rows > protocol.MaxRows):
			t.Errorf("%+v", got)
		case encode(map[string]any{"ts": got.TS}) == nil:
			t.Errorf("%q can't be answered", got.TS)
		}
	})
}
