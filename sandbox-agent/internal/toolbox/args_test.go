package toolbox_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox/toolboxtest"
)

type readArgs struct {
	Path     string `json:"path"`
	Offset   int64  `json:"offset"`
	Limit    *int64 `json:"limit"`
	Encoding string `json:"encoding"`
}

func TestDecode(t *testing.T) {
	var a readArgs
	toolboxtest.Works(t, toolbox.Decode(nil, &a))
	toolboxtest.Works(t, toolbox.Decode(json.RawMessage(` null `), &a))
	toolboxtest.Works(t, toolbox.Decode(json.RawMessage(`{"path":"a","offset":3,"limit":null}`), &a))
	if a.Path != "a" || a.Offset != 3 || a.Limit != nil {
		t.Errorf("got %+v", a)
	}
	toolboxtest.Fails(t, toolbox.Decode(json.RawMessage(`{"zebra":1,"apple":2}`), &a), protocol.KindInvalid, `"apple", "zebra"`)
	toolboxtest.Fails(t, toolbox.Decode(json.RawMessage(`{"path":7}`), &a), protocol.KindInvalid, "argument path can't be a number")
	toolboxtest.Fails(t, toolbox.Decode(json.RawMessage(`{"offset":1.5}`), &a), protocol.KindInvalid, "offset")
	toolboxtest.Fails(t, toolbox.Decode(json.RawMessage(`{"path":"a","path":"b"}`), &a), protocol.KindInvalid, "twice")
	toolboxtest.Fails(t, toolbox.Decode(json.RawMessage(`{"`+strings.Repeat("x", 1<<20)+`":1}`), &a), protocol.KindInvalid, "unknown")
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"path":"a","offset":1,"limit":2,"encoding":"base64"}`))
	f.Add([]byte(`{"PATH":"a"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, args []byte) {
		var a readArgs
		if toolbox.Decode(args, &a) != nil {
			return
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(args, &members) != nil && len(strings.TrimSpace(string(args))) > 0 {
			t.Fatalf("%q was taken for an object", args)
		}
		for name := range members {
			if !slices.Contains(toolbox.Names(&a), name) {
				t.Fatalf("%q was taken with %q", args, name)
			}
		}
	})
}
