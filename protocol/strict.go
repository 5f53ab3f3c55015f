package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// maxStrictDepth bounds the nesting that [UnmarshalStrict] accepts.
const maxStrictDepth = 64

// UnmarshalStrict decodes data, which must be exactly one JSON object in valid
// UTF-8. At any depth, every member must be known to v by its exact name,
// letter case included, and no member may be repeated. At the top level it also
// accepts, and skips, the members named in also. It is for what people and
// programs of one version write; the tunnel's messages are decoded leniently,
// see [UnmarshalObject].
func UnmarshalStrict(data []byte, v any, also ...string) error {
	if err := UnmarshalObject(data, &map[string]json.RawMessage{}); err != nil {
		return err
	}
	if err := checkMembers(json.NewDecoder(bytes.NewReader(data)), 0); err != nil {
		return err
	}
	if err := checkNames(data, reflect.TypeOf(v), also); err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// checkNames reports a member of data for which t has no field. encoding/json
// accepts "Signal" for "signal"; other parsers don't. A type with its own
// decoder checks its members itself.
func checkNames(data json.RawMessage, t reflect.Type, also []string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		fields := map[string]reflect.Type{}
		fieldsOf(t, fields)
		return eachMember(data, func(name string, value json.RawMessage) error {
			field, known := fields[name]
			switch {
			case known:
				return checkNames(value, field, nil)
			case slices.Contains(also, name):
				return nil
			}
			return fmt.Errorf("json: unknown field %q", name)
		})
	case reflect.Map:
		if !nests(t.Elem()) {
			return nil
		}
		return eachMember(data, func(_ string, value json.RawMessage) error { return checkNames(value, t.Elem(), nil) })
	case reflect.Slice, reflect.Array:
		if !nests(t.Elem()) {
			return nil
		}
		var elements []json.RawMessage
		if json.Unmarshal(data, &elements) != nil {
			return nil // the decoder reports it
		}
		for _, e := range elements {
			if err := checkNames(e, t.Elem(), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// nests reports whether a value of t may contain fields.
func nests(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
		return true
	}
	return false
}

// eachMember calls check with each member of an object. It ignores anything
// else, which the decoder reports.
func eachMember(data json.RawMessage, check func(name string, value json.RawMessage) error) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return nil
	}
	for name, value := range members {
		if err := check(name, value); err != nil {
			return err
		}
	}
	return nil
}

// fieldsOf adds the fields of a struct by their JSON names.
func fieldsOf(t reflect.Type, fields map[string]reflect.Type) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case field.Anonymous && name == "":
			if inner := field.Type; inner.Kind() == reflect.Pointer {
				fieldsOf(inner.Elem(), fields)
			} else {
				fieldsOf(inner, fields)
			}
		case !field.IsExported():
		case name == "":
			fields[field.Name] = field.Type
		default:
			fields[name] = field.Type
		}
	}
}

// MemberNames returns the JSON names of the fields of v, a struct or a pointer
// to one.
func MemberNames(v any) []string {
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	fields := map[string]reflect.Type{}
	fieldsOf(t, fields)
	return slices.Sorted(maps.Keys(fields))
}

// maxPlainMembers bounds the members for [checkDistinct]'s quick path.
const maxPlainMembers = 16

// checkDistinct reports a repeated member of data, one valid JSON object. At
// its top level, names that differ only in letter case count as equal, as
// decoders accept either. It is quick for small, flat objects, which browsers
// send by the thousand.
func checkDistinct(data []byte) error {
	var names [maxPlainMembers][]byte
	n, depth := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if depth++; depth > 1 {
				return checkAllDistinct(data)
			}
		case '"':
			text := data[i+1:]
			end := bytes.IndexByte(text, '"')
			if end < 0 || n == len(names) || bytes.IndexByte(text[:end], '\\') >= 0 {
				return checkAllDistinct(data)
			}
			i += 1 + end
			if rest := bytes.TrimLeft(text[end+1:], " \t\r\n"); len(rest) == 0 || rest[0] != ':' {
				continue // a value
			}
			for _, name := range names[:n] {
				if bytes.EqualFold(name, text[:end]) {
					return fmt.Errorf("member %q appears twice", text[:end])
				}
			}
			names[n] = text[:end]
			n++
		}
	}
	return nil
}

// checkAllDistinct is checkDistinct for any object.
func checkAllDistinct(data []byte) error {
	if err := checkMembers(json.NewDecoder(bytes.NewReader(data)), 0); err != nil {
		return err
	}
	return CheckDistinct(data)
}

// A scope is an object or array that [CheckDistinct] is inside.
type scope struct {
	names    map[string]struct{} // folded names of the members so far; nil for an array
	wantName bool                // the next token is a member's name
}

// CheckDistinct reports a member of an object in data, at any depth, whose name
// equals another's or differs from it only in letter case: parsers disagree
// about which one counts. It has its own stack, so that memory for deep nesting
// is proportional to data.
func CheckDistinct(data []byte) error {
	if !json.Valid(data) {
		return errors.New("not valid JSON")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	open := []scope{{}}
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errors.New("not valid JSON")
		}
		here := &open[len(open)-1]
		if name, ok := token.(string); ok && here.wantName {
			folded := FoldName(name)
			if _, twin := here.names[folded]; twin {
				return fmt.Errorf("member %.64q appears twice", name)
			}
			here.names[folded] = struct{}{}
			here.wantName = false
			continue
		}
		switch token {
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
			continue
		}
		here.wantName = here.names != nil // what begins here is a value; a name follows it
		switch token {
		case json.Delim('{'):
			open = append(open, scope{names: map[string]struct{}{}, wantName: true})
		case json.Delim('['):
			open = append(open, scope{})
		}
	}
}

// FoldName returns one name for all names that encoding/json treats as equal:
// each rune is replaced by the smallest of its case variants.
func FoldName(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

// checkMembers reads one value from dec and reports a repeated member.
func checkMembers(dec *json.Decoder, depth int) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxStrictDepth {
		return fmt.Errorf("nested deeper than %d", maxStrictDepth)
	}
	seen := make(map[string]bool)
	for dec.More() {
		if open == '{' {
			name, err := dec.Token()
			if err != nil {
				return err
			}
			key := name.(string) // the decoder allows nothing else here
			if seen[key] {
				return fmt.Errorf("member %q appears twice", key)
			}
			seen[key] = true
		}
		if err := checkMembers(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the closing delimiter
	return err
}
