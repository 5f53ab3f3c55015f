package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// maxSchemas bounds the decoded schemas.
const maxSchemas = 1024

// schemas are the decoded input schemas of tools. Only an object's own members
// are checked; tools check the rest themselves.
type schemas struct {
	mu sync.Mutex
	// Guarded by mu.
	decoded map[string]*schema // by their text
}

type schema struct {
	Properties map[string]struct {
		Type json.RawMessage `json:"type"` // a name, or a list of them
	} `json:"properties"`
	Required   []string        `json:"required"`
	Additional json.RawMessage `json:"additionalProperties"`
}

func (s *schemas) decode(text json.RawMessage) *schema {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.decoded[string(text)]; ok {
		return found
	}
	if s.decoded == nil || len(s.decoded) >= maxSchemas {
		s.decoded = make(map[string]*schema)
	}
	found := &schema{}
	if json.Unmarshal(text, found) != nil {
		found = &schema{} // it has nothing to check
	}
	s.decoded[string(text)] = found
	return found
}

// check returns args as an object, or an error if it doesn't fit the schema.
func (s *schemas) check(text, args json.RawMessage) (json.RawMessage, error) {
	args = bytes.TrimSpace(args)
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	var members map[string]json.RawMessage
	if args[0] != '{' || json.Unmarshal(args, &members) != nil {
		return nil, errors.New("the arguments must be an object")
	}
	wanted := s.decode(text)
	var unknown, missing []string
	for name, value := range members {
		property, ok := wanted.Properties[name]
		switch {
		case ok && !fits(property.Type, value):
			return nil, fmt.Errorf("argument %s must be %s", name, property.Type)
		case !ok && wanted.closed():
			unknown = append(unknown, fmt.Sprintf("%.64q", name))
		}
	}
	for _, name := range wanted.Required {
		if _, ok := members[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, fmt.Errorf("unknown arguments: %s", strings.Join(unknown[:min(len(unknown), 8)], ", "))
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("missing arguments: %s", strings.Join(missing, ", "))
	}
	return args, nil
}

// closed reports whether the schema lists all allowed members. A schema that
// lists none doesn't restrict them.
func (s *schema) closed() bool {
	if s.Additional != nil {
		return string(s.Additional) == "false"
	}
	return s.Properties != nil
}

// fits reports whether value is of a type that kinds names.
func fits(kinds, value json.RawMessage) bool {
	var names []string
	var name string
	if json.Unmarshal(kinds, &name) == nil {
		names = []string{name}
	} else if json.Unmarshal(kinds, &names) != nil {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool { return isOf(name, value) })
}

func isOf(kind string, value json.RawMessage) bool {
	if len(value) == 0 {
		return false
	}
	number := value[0] == '-' || '0' <= value[0] && value[0] <= '9'
	switch kind {
	case "string":
		return value[0] == '"'
	case "number":
		return number
	case "integer":
		var n float64
		return number && json.Unmarshal(value, &n) == nil && n == float64(int64(n))
	case "boolean":
		return value[0] == 't' || value[0] == 'f'
	case "array":
		return value[0] == '['
	case "object":
		return value[0] == '{'
	case "null":
		return value[0] == 'n'
	}
	return true
}
