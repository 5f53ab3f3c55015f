package feed

import (
	"bytes"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func FuzzAssembly(f *testing.F) {
	f.Add([]byte{3, 0, 2, 1, 1, 0, 0})
	f.Add([]byte{200, 1, 100, 0, 7})
	f.Fuzz(func(t *testing.T, in []byte) {
		var a Assembly
		var sent []byte
		for ; len(in) >= 2; in = in[2:] {
			p := bytes.Repeat([]byte{in[0]}, 1+int(in[0])%50)
			whole, err := a.Add(protocol.Keyframe{Left: int(in[1]) % 64, Bytes: p}, false)
			if err != nil {
				return
			}
			sent = append(sent, p...)
			if !whole {
				continue
			}
			kf, _ := a.Take()
			payload, rest, err := relaytest.Frame(bytes.Join(kf.frames, nil))
			if err != nil || len(rest) > 0 || !bytes.Equal(payload, sent) || kf.bytes != len(sent) {
				t.Fatalf("%d bytes became %d, %d behind, %v", len(sent), len(payload), len(rest), err)
			}
			sent = nil
		}
	})
}

// However many readers get a keyframe, they share its memory.
func TestAKeyframeIsNotCopied(t *testing.T) {
	f := newFeed()
	kf := screenAt(t, f, 0, 10)
	for range 2 {
		r := &Reader{}
		r.Init(f, &consumer{}, Start{}, false, false)
		if _, ok := r.AttachBehind(kf); !ok {
			t.Fatal("not attached")
		}
		if frames, out := r.Next(nil, false); len(frames) == 0 || &frames[0][0] != &kf.frames[0][0] || out.Keyframe != kf {
			t.Error("a keyframe is copied for each viewer")
		}
	}
}
