package toolbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// Decode reads the arguments of a tool into v, a pointer to a struct. Names are
// compared letter by letter. The error, of KindInvalid, names an argument that v
// doesn't have.
func Decode(args json.RawMessage, v any) error {
	if args = bytes.TrimSpace(args); len(args) == 0 || bytes.Equal(args, []byte("null")) {
		args = json.RawMessage("{}")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(args, &members); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "the arguments are not an object")
	}
	known := Names(v)
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

// Names returns the members of the struct to which v points, as JSON spells them.
func Names(v any) []string {
	var list []string
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		list = append(list, name)
	}
	return list
}

// Within returns an error unless the argument name lies in its range.
func Within(name string, value, least, most int64) error {
	if value < least || value > most {
		return protocol.Errorf(protocol.KindInvalid, "argument %s is outside of %d to %d", name, least, most)
	}
	return nil
}

// Missing is the error of a call that lacks the argument name.
func Missing(name string) error {
	return protocol.Errorf(protocol.KindInvalid, "argument %s is missing", name)
}

// Permit returns an error unless c has the capability need in the terminal pty
// of its session; "" stands for the session.
func (c Caller) Permit(pty protocol.PTYID, need protocol.Capability) error {
	switch {
	case c.Allows(pty, need):
		return nil
	case pty == "":
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", need)
	}
	return protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this terminal", need)
}
