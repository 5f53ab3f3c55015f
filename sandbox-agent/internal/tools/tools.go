// Package tools holds the tools that work on a session's terminals and on the
// workspace, for coding agents and for people's MCP clients. They do what relays
// may ask for over other routes, under the same capabilities and masks.
package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// decode reads the arguments of a tool into v, a pointer to a struct. Names are
// compared as they are spelled; one that v doesn't have is an error that says it.
func decode(args json.RawMessage, v any) error {
	if args = bytes.TrimSpace(args); len(args) == 0 || bytes.Equal(args, []byte("null")) {
		args = json.RawMessage("{}")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(args, &members); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "the arguments are not an object")
	}
	known := names(v)
	var unknown []string
	for name := range members {
		if !slices.Contains(known, name) {
			unknown = append(unknown, fmt.Sprintf("%.64q", name))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return protocol.Errorf(protocol.KindInvalid, "unknown arguments: %s; known ones are %s",
			strings.Join(unknown[:min(len(unknown), 8)], ", "), strings.Join(known, ", "))
	}
	err := protocol.UnmarshalStrict(args, v)
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		return protocol.Errorf(protocol.KindInvalid, "argument %s can't be a %s", mistyped.Field, mistyped.Value)
	}
	if err != nil {
		return protocol.Errorf(protocol.KindInvalid, "the arguments: %w", err)
	}
	return nil
}

// names returns the members of the struct that v points to.
func names(v any) []string {
	var list []string
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		list = append(list, name)
	}
	return list
}

// within reports an argument that is outside of its range, as an error.
func within(name string, value, least, most int64) error {
	if value < least || value > most {
		return protocol.Errorf(protocol.KindInvalid, "argument %s is outside of %d to %d", name, least, most)
	}
	return nil
}

func missing(name string) error {
	return protocol.Errorf(protocol.KindInvalid, "argument %s is missing", name)
}

// permit reports, as an error, what caller's grant doesn't allow.
func permit(caller toolbox.Caller, pty protocol.PTYID, need protocol.Capability) error {
	switch {
	case caller.Allows(pty, need):
		return nil
	case pty == "":
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", need)
	}
	return protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this terminal", need)
}

// told returns what may be shown of err: one that has no kind is a fault of ours.
func told(err error) error {
	if err == nil {
		return nil
	}
	return protocol.AsError(err)
}
