package jws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// parseObject decodes data, which must be one JSON object in valid UTF-8. No
// object in it, at any depth, may have two members whose names are equal or
// differ only in case: parsers disagree about which of them counts.
func parseObject(data []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	if !json.Valid(data) {
		return nil, errors.New("not valid JSON")
	}
	if err := checkTwins(data); err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return nil, errors.New("not a JSON object")
	}
	return members, nil
}

// A scope is an object or array that checkTwins is inside of.
type scope struct {
	names    map[string]struct{} // folded names of the members so far; nil for an array
	wantName bool                // the next token is a member's name
}

// checkTwins walks data, which must be valid JSON. It keeps a stack of its own,
// so that deep nesting costs memory in proportion to data and no more.
func checkTwins(data []byte) error {
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
			folded := fold(name)
			if _, twin := here.names[folded]; twin {
				return errors.New("a member is there twice")
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
		here.wantName = here.names != nil // whatever begins here is a value; a name follows it
		switch token {
		case json.Delim('{'):
			open = append(open, scope{names: map[string]struct{}{}, wantName: true})
		case json.Delim('['):
			open = append(open, scope{})
		}
	}
}

// fold returns the representative of all names that encoding/json matches with
// name: each rune replaced by the smallest of its case variants.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for v := unicode.SimpleFold(r); v != r; v = unicode.SimpleFold(v) {
			least = min(least, v)
		}
		return least
	}, name)
}

// A vocabulary holds the member names of an object that we read, under their
// folded form.
type vocabulary map[string]string

// vocabularyOf collects the JSON names of the fields of the given structs.
func vocabularyOf(structs ...any) vocabulary {
	v := vocabulary{}
	for _, s := range structs {
		for field := range reflect.TypeOf(s).Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
				v[fold(name)] = name
			}
		}
	}
	return v
}

// check refuses a member that would be one of ours but for its case:
// encoding/json would take it for ours, other readers would not.
func (v vocabulary) check(members map[string]json.RawMessage) error {
	for name := range members {
		if ours, ok := v[fold(name)]; ok && ours != name {
			return fmt.Errorf("a member differs from %q only in case", ours)
		}
	}
	return nil
}

// foreign returns a member that is none of ours, "" when there is none.
func (v vocabulary) foreign(members map[string]json.RawMessage) string {
	for name := range members {
		if v[fold(name)] != name {
			return name
		}
	}
	return ""
}

// foreignIn is foreign for the object under name, if there is one.
func (v vocabulary) foreignIn(members map[string]json.RawMessage, name string) string {
	var inner map[string]json.RawMessage
	if json.Unmarshal(members[name], &inner) != nil {
		return ""
	}
	return v.foreign(inner)
}

// checkMember applies v to the object under name, if there is one.
func (v vocabulary) checkMember(members map[string]json.RawMessage, name string) error {
	var inner map[string]json.RawMessage
	if json.Unmarshal(members[name], &inner) != nil {
		return nil // absent or no object: whoever decodes it says so
	}
	return v.check(inner)
}

// stringMember returns the string under name. A member that is absent or is no
// string is reported as not there.
func stringMember(members map[string]json.RawMessage, name string) (string, bool) {
	raw := members[name]
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", false
	}
	return s, true
}
