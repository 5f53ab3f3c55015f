package pipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/chromedp/cdproto"
)

// A sink keeps what is written.
type sink struct{ bytes.Buffer }

func (*sink) Close() error { return nil }

// reading returns a pipe on which Chromium says text.
func reading(text string) *Pipe {
	return New(io.NopCloser(strings.NewReader(text)), &sink{})
}

// messages reads all that is for somebody, and how it ends.
func messages(p *Pipe) (all []cdproto.Message, err error) {
	for {
		var m cdproto.Message
		if err := p.Read(context.Background(), &m); err != nil {
			return all, err
		}
		all = append(all, m)
	}
}

// TestPipeRead: answers and the events that somebody hears come through, in
// order; others don't.
func TestPipeRead(t *testing.T) {
	p := reading(strings.Join([]string{
		`{"id":1,"result":{"x":1},"sessionId":"S"}`,
		`{"method":"Runtime.consoleAPICalled","params":{"args":[]},"sessionId":"S"}`,
		`{"method":"Page.lifecycleEvent","params":{"name":"load"},"sessionId":"S"}`,
		`{"method":"Page.frameNavigated","params":{"frame":{"id":"1","parentId":"2","url":"http://x"}},"sessionId":"S"}`,
		``,
		`{"sessionId":"S","method":"Network.dataReceived","params":{}}`,
		`{"id":2,"error":{"code":-1,"message":"no"}}`,
		``,
	}, "\x00"))
	got, err := messages(p)
	if err != io.EOF || len(got) != 3 {
		t.Fatalf("%+v %v", got, err)
	}
	if got[0].ID != 1 || string(got[0].Result) != `{"x":1}` || got[0].SessionID != "S" || got[1].Method != "Page.lifecycleEvent" || got[2].Error == nil {
		t.Errorf("%+v", got)
	}
}

// TestPipeLimits: of what is too large nothing is kept, and who asked is told.
func TestPipeLimits(t *testing.T) {
	large := func(prefix string, size int) string { return prefix + strings.Repeat("x", size) + `"}}` + "\x00" }
	p := reading(large(`{"id":7,"result":{"a":"`, maxAnswer) +
		large(`{"method":"Page.lifecycleEvent","params":{"a":"`, maxEvent) +
		large(`{"params":{"n":"1"},"method":"Page.windowOpen","x":{"a":"`, maxEvent) +
		large(`{"method":"Log.entryAdded","params":{"a":"`, maxAnswer*2) +
		`{"id":8,"result":{}}` + "\x00")
	if err := p.Write(t.Context(), &cdproto.Message{ID: 7, SessionID: "S", Method: "Runtime.evaluate"}); err != nil {
		t.Fatal(err)
	}
	got, err := messages(p)
	if err != io.EOF || len(got) != 2 || got[0].ID != 7 || got[0].SessionID != "S" || !TooLarge(got[0].Error) || got[1].ID != 8 {
		t.Fatalf("%+v %v", got, err)
	}
	if len(p.awaiting) != 0 {
		t.Errorf("still awaited: %v", p.awaiting)
	}
}

// TestPipeEnds: half a message is an error, and so is what is none.
func TestPipeEnds(t *testing.T) {
	for text, want := range map[string]error{"": io.EOF, `{"id":1`: io.ErrUnexpectedEOF, "\x00\x00": io.EOF} {
		if got, err := messages(reading(text)); !errors.Is(err, want) || len(got) > 0 {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
	if _, err := messages(reading("{\"id\":}\x00")); err == nil || err == io.EOF {
		t.Errorf("%v", err)
	}
}

// TestPipeWrite: commands are JSON with a zero byte behind.
func TestPipeWrite(t *testing.T) {
	out := &sink{}
	p := New(io.NopCloser(strings.NewReader("")), out)
	for id := range int64(2) {
		if err := p.Write(t.Context(), &cdproto.Message{ID: id + 1, SessionID: "S", Method: "Page.enable", Params: []byte(`{"a":"b\u0000"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	parts := bytes.Split(out.Bytes(), []byte{0})
	if len(parts) != 3 || len(parts[2]) != 0 {
		t.Fatalf("%q", parts)
	}
	for _, part := range parts[:2] {
		var m map[string]any
		if err := json.Unmarshal(part, &m); err != nil || m["method"] != "Page.enable" || m["sessionId"] != "S" {
			t.Errorf("%q: %v", part, err)
		}
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
}

// FuzzPipe: whatever Chromium says, reading ends, keeps nothing for commands that
// have their answer, and lets no event through that nobody hears.
func FuzzPipe(f *testing.F) {
	for _, seed := range []string{
		"{\"id\":1,\"result\":{}}\x00", "{\"method\":\"Page.lifecycleEvent\",\"params\":{}}\x00", "{\"id\":99999999999999999999}\x00", "\x00{\"id\":", "[]\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p := reading(string(text))
		p.awaiting[1] = "S"
		got, err := messages(p)
		if err == nil {
			t.Fatal("no end")
		}
		for _, m := range got {
			if _, known := heard[string(m.Method)]; m.ID == 0 && !known {
				t.Errorf("%+v came through", m)
			}
			if _, still := p.awaiting[m.ID]; m.ID != 0 && still {
				t.Errorf("%d is still awaited", m.ID)
			}
		}
	})
}
