package jws

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
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
	if protocol.CheckDistinct(data) != nil {
		return nil, errors.New("a member is there twice")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return nil, errors.New("not a JSON object")
	}
	return members, nil
}

// A vocabulary holds the member names of an object that we read, under their
// folded form.
type vocabulary map[string]string

// vocabularyOf collects the names of members.
func vocabularyOf(names []string) vocabulary {
	v := vocabulary{}
	for _, name := range names {
		v[protocol.FoldName(name)] = name
	}
	return v
}

// check refuses a member that would be one of ours but for its case:
// encoding/json would take it for ours, other readers would not.
func (v vocabulary) check(members map[string]json.RawMessage) error {
	for name := range members {
		if ours, ok := v[protocol.FoldName(name)]; ok && ours != name {
			return fmt.Errorf("a member differs from %q only in case", ours)
		}
	}
	return nil
}

// foreign returns a member that is none of ours, "" when there is none.
func (v vocabulary) foreign(members map[string]json.RawMessage) string {
	for name := range members {
		if v[protocol.FoldName(name)] != name {
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
