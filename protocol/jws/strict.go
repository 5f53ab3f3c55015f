package jws

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// parseObject decodes data, which must be one JSON object in valid UTF-8. No
// object at any depth may have two members with names that are equal or differ
// only in case: parsers disagree about which one counts.
func parseObject(data []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	if !json.Valid(data) {
		return nil, errors.New("not valid JSON")
	}
	if protocol.CheckDistinct(data) != nil {
		return nil, errors.New("a member is there twice")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return nil, errors.New("not a JSON object")
	}
	return members, nil
}

// A vocabulary holds the known member names of an object, by their folded form.
type vocabulary map[string]string

// vocabularyOf collects the names of members.
func vocabularyOf(names []string) vocabulary {
	v := vocabulary{}
	for _, name := range names {
		v[protocol.FoldName(name)] = name
	}
	return v
}

// check refuses a member whose name differs from a known one only in case:
// encoding/json would accept it, other parsers would not.
func (v vocabulary) check(members map[string]json.RawMessage) error {
	for name := range members {
		if ours, ok := v[protocol.FoldName(name)]; ok && ours != name {
			return fmt.Errorf("a member differs from %q only in case", ours)
		}
	}
	return nil
}

// foreign returns an unknown member, quoted as one may have no name at all; "" if
// there is none.
func (v vocabulary) foreign(members map[string]json.RawMessage) string {
	for name := range members {
		if ours, known := v[protocol.FoldName(name)]; !known || ours != name {
			return strconv.Quote(name)
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
		return nil // absent or no object: its decoder reports that
	}
	return v.check(inner)
}

// stringMember returns the string member name; false if it is absent or no
// string.
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
