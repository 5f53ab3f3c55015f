// Package toolboxtest calls tools for tests, and checks their schemas.
package toolboxtest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// Program is a program of the terminal p1 of session s1.
var Program = toolbox.Caller{Session: "s1", PTY: "p1"}

// Person returns somebody who may do what caps say in the terminals ptys of
// session s1.
func Person(ptys []string, caps ...protocol.Capability) toolbox.Caller {
	return toolbox.Caller{Session: "s1", Grant: &jws.Grant{
		Subject: "ada", Session: "s1", PTYs: ptys, Caps: caps, ExpiresAt: 1 << 40, ID: "g1",
	}}
}

// Call calls the tool name and returns its texts, and its error as the caller
// would be told it.
func Call(t *testing.T, set toolbox.Set, caller toolbox.Caller, name, args string) ([]string, error) {
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

// Fails checks that err has kind and that its text holds word.
func Fails(t *testing.T, err error, kind protocol.Kind, word string) {
	t.Helper()
	if err == nil || protocol.KindOf(err) != kind || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v (%v), want %v with %q", err, protocol.KindOf(err), kind, word)
	}
}

// Works ends the test unless err is nil.
func Works(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Schemas checks that the tools of set take what their schemas say, and nothing
// else. arguments holds a pointer to the arguments of each tool, by its name.
func Schemas(t *testing.T, set toolbox.Set, arguments map[string]any) {
	t.Helper()
	for _, tool := range set.Tools(Program) {
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
		if arguments[tool.Name] == nil {
			t.Errorf("%s: nobody says what its arguments are decoded into", tool.Name)
			continue
		}
		known := toolbox.Names(arguments[tool.Name])
		for name, property := range schema.Properties {
			if !slices.Contains(known, name) || property.Type == "" {
				t.Errorf("%s: argument %s is not taken, or has no type", tool.Name, name)
			}
		}
		if len(known) != len(schema.Properties) {
			t.Errorf("%s takes %v, and describes %d", tool.Name, known, len(schema.Properties))
		}
		for _, bad := range []string{`[]`, `"x"`, `{`, `{"a":1}{}`, `{"Path":"x","path":"y"}`, `{"nonsense":1}`} {
			_, err := tool.Call(t.Context(), Program, json.RawMessage(bad))
			Fails(t, err, protocol.KindInvalid, "")
		}
		if len(schema.Required) == 1 {
			_, err := tool.Call(t.Context(), Program, nil)
			Fails(t, err, protocol.KindInvalid, schema.Required[0])
		}
	}
}
