package tools

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var program = toolbox.Caller{Session: "s1", PTY: "p1"}

// person returns somebody who may do what caps say in the terminals ptys.
func person(ptys []string, caps ...protocol.Capability) toolbox.Caller {
	return toolbox.Caller{Session: "s1", Grant: &jws.Grant{
		Subject: "ada", Session: "s1", PTYs: ptys, Caps: caps, ExpiresAt: 1 << 40, ID: "g1",
	}}
}

// call calls the tool name and returns its texts, and its error as the caller
// would be told it.
func call(t *testing.T, set toolbox.Set, caller toolbox.Caller, name, args string) ([]string, error) {
	t.Helper()
	for _, tool := range set.Tools(caller) {
		if tool.Name != name {
			continue
		}
		result, err := tool.Call(t.Context(), caller, json.RawMessage(args))
		var texts []string
		for _, part := range result.Content {
			texts = append(texts, part.Text)
		}
		if err == nil && result.IsError {
			err = protocol.Errorf(protocol.KindUnavailable, "%s", strings.Join(texts, " "))
		}
		return texts, err
	}
	t.Fatalf("there is no tool %s", name)
	return nil, nil
}

func fails(t *testing.T, err error, kind protocol.Kind, word string) {
	t.Helper()
	if err == nil || protocol.KindOf(err) != kind || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v (%v), want %v with %q", err, protocol.KindOf(err), kind, word)
	}
}

func works(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What a schema says and what a tool takes are the same, and nothing else is taken.
func TestSchemas(t *testing.T) {
	arguments := map[string]any{
		"terminal_list": &listArgs{}, "terminal_read": &readArgs{}, "terminal_send": &sendArgs{}, "terminal_run": &runArgs{},
		"file_list": &fileListArgs{}, "file_read": &fileReadArgs{}, "file_search": &fileSearchArgs{},
		"file_write": &fileWriteArgs{}, "file_mkdir": &pathArgs{}, "file_move": &fileMoveArgs{}, "file_delete": &pathArgs{},
	}
	for _, set := range []toolbox.Set{&Terminals{}, &Files{}} {
		for _, tool := range set.Tools(program) {
			var schema struct {
				Type       string
				Properties map[string]struct{ Type string }
				Required   []string
				Additional *bool `json:"additionalProperties"`
			}
			if err := json.Unmarshal(tool.InputSchema, &schema); err != nil {
				t.Fatalf("%s: %v", tool.Name, err)
			}
			if schema.Type != "object" || schema.Additional == nil || *schema.Additional {
				t.Errorf("%s: the schema is open", tool.Name)
			}
			known := names(arguments[tool.Name])
			for name, property := range schema.Properties {
				if !slices.Contains(known, name) || property.Type == "" {
					t.Errorf("%s: argument %s is not taken, or has no type", tool.Name, name)
				}
			}
			if len(known) != len(schema.Properties) {
				t.Errorf("%s takes %v, and describes %d", tool.Name, known, len(schema.Properties))
			}
			for _, bad := range []string{`[]`, `"x"`, `{`, `{"a":1}{}`, `{"Path":"x","path":"y"}`, `{"nonsense":1}`} {
				_, err := tool.Call(t.Context(), program, json.RawMessage(bad))
				fails(t, err, protocol.KindInvalid, "")
			}
			for _, name := range schema.Required {
				if len(schema.Required) > 1 {
					break
				}
				_, err := tool.Call(t.Context(), program, nil)
				fails(t, err, protocol.KindInvalid, name)
			}
		}
	}
}

func TestDecode(t *testing.T) {
	var a fileReadArgs
	works(t, decode(nil, &a))
	works(t, decode(json.RawMessage(` null `), &a))
	works(t, decode(json.RawMessage(`{"path":"a","offset":3,"limit":null}`), &a))
	if a.Path != "a" || a.Offset != 3 || a.Limit != nil {
		t.Errorf("got %+v", a)
	}
	fails(t, decode(json.RawMessage(`{"zebra":1,"apple":2}`), &a), protocol.KindInvalid, `"apple", "zebra"`)
	fails(t, decode(json.RawMessage(`{"path":7}`), &a), protocol.KindInvalid, "argument path can't be a number")
	fails(t, decode(json.RawMessage(`{"offset":1.5}`), &a), protocol.KindInvalid, "offset")
	fails(t, decode(json.RawMessage(`{"path":"a","path":"b"}`), &a), protocol.KindInvalid, "twice")
	fails(t, decode(json.RawMessage(`{"`+strings.Repeat("x", 1<<20)+`":1}`), &a), protocol.KindInvalid, "unknown")
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"path":"a","offset":1,"limit":2,"encoding":"base64"}`))
	f.Add([]byte(`{"PATH":"a"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, args []byte) {
		var a fileReadArgs
		if decode(args, &a) != nil {
			return
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(args, &members) != nil && len(strings.TrimSpace(string(args))) > 0 {
			t.Fatalf("%q was taken for an object", args)
		}
		for name := range members {
			if !slices.Contains(names(&a), name) {
				t.Fatalf("%q was taken with %q", args, name)
			}
		}
	})
}
