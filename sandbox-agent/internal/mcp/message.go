package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/fairlead/fairlead/protocol"
)

// Versions of the protocol from which on a rule holds.
const (
	versionNoBatches  = "2025-06-18"
	versionNoSessions = "2026-07-28"
)

// A method says what a request with its name must have.
type method struct {
	notification bool // it has no id and no answer
	params       bool // it needs params
}

// methods are those of the protocol that a client may send to a server.
var methods = map[string]method{
	"initialize":                       {params: true},
	"ping":                             {},
	"server/discover":                  {},
	"tools/list":                       {},
	"tools/call":                       {params: true},
	"prompts/list":                     {},
	"prompts/get":                      {params: true},
	"resources/list":                   {},
	"resources/templates/list":         {},
	"resources/read":                   {params: true},
	"resources/subscribe":              {params: true},
	"resources/unsubscribe":            {params: true},
	"subscriptions/listen":             {params: true},
	"completion/complete":              {params: true},
	"logging/setLevel":                 {params: true},
	"notifications/initialized":        {notification: true},
	"notifications/cancelled":          {notification: true},
	"notifications/progress":           {notification: true, params: true},
	"notifications/roots/list_changed": {notification: true},
}

// An rpcError is a JSON-RPC error, with the request that it answers.
type rpcError struct {
	id      json.RawMessage // nil: unknown
	code    int64
	message string
}

func (e *rpcError) Error() string { return e.message }

func rpcErrorf(id json.RawMessage, code int64, format string, args ...any) *rpcError {
	return &rpcError{id, code, fmt.Sprintf(format, args...)}
}

// A message holds the checked fields of a JSON-RPC message.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// A parcel is the body of a POST.
type parcel struct {
	initialize bool // it begins a session
	discover   bool // it asks for the supported versions
	empty      bool // nothing in it needs an answer
}

// parse checks a body before the SDK does, whose decoder has no limits. version
// is that of the request's header.
func parse(body []byte, version string) (parcel, error) {
	depth, elements := measure(body)
	if depth > protocol.MaxMCPDepth {
		return parcel{}, rpcErrorf(nil, jsonrpc.CodeInvalidRequest, "the message nests deeper than %d", protocol.MaxMCPDepth)
	}
	body = bytes.TrimSpace(body)
	if !json.Valid(body) {
		return parcel{}, rpcErrorf(nil, jsonrpc.CodeParseError, "the body is not JSON")
	}
	if body[0] != '[' {
		p, err := parseOne(body)
		if err != nil {
			return parcel{}, err
		}
		return p, nil
	}
	switch {
	case version >= versionNoBatches:
		return parcel{}, rpcErrorf(nil, jsonrpc.CodeInvalidRequest, "version %s of the protocol has no batches", version)
	case elements == 0 || elements > protocol.MaxMCPBatch:
		return parcel{}, rpcErrorf(nil, jsonrpc.CodeInvalidRequest, "a batch has 1 to %d messages", protocol.MaxMCPBatch)
	}
	return parseBatch(body)
}

func parseBatch(body []byte) (parcel, error) {
	var batch []json.RawMessage
	if err := json.Unmarshal(body, &batch); err != nil {
		return parcel{}, rpcErrorf(nil, jsonrpc.CodeParseError, "the body is not JSON")
	}
	for _, one := range batch {
		p, err := parseOne(one)
		switch {
		case err != nil:
			return parcel{}, err
		case p.initialize:
			return parcel{}, rpcErrorf(nil, jsonrpc.CodeInvalidRequest, "initialize stands alone")
		case p.empty:
			return parcel{}, rpcErrorf(nil, jsonrpc.CodeMethodNotFound, "a notification in the batch is not known")
		}
	}
	return parcel{}, nil
}

// parseOne checks one message, which is valid JSON.
func parseOne(body []byte) (parcel, *rpcError) {
	var m message
	if body[0] != '{' || json.Unmarshal(body, &m) != nil || m.Version != "2.0" {
		return parcel{}, rpcErrorf(nil, jsonrpc.CodeInvalidRequest, "not a message of JSON-RPC 2.0")
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	if len(m.ID) > 0 && m.ID[0] != '"' {
		// The SDK would answer with another number.
		if _, err := strconv.ParseInt(string(m.ID), 10, 64); err != nil {
			return parcel{}, rpcErrorf(nil, jsonrpc.CodeInvalidRequest, "an id is a string or an integer of 64 bits")
		}
	}
	if m.Method == nil {
		if m.ID == nil || (m.Result == nil) == (m.Error == nil) {
			return parcel{}, rpcErrorf(m.ID, jsonrpc.CodeInvalidRequest, "neither a request nor an answer")
		}
		return parcel{}, nil
	}
	known, ok := methods[*m.Method]
	switch {
	case !ok && m.ID == nil:
		return parcel{empty: true}, nil // notifications have no answer, unknown ones neither
	case !ok:
		return parcel{}, rpcErrorf(m.ID, jsonrpc.CodeMethodNotFound, "method %.64q is not known", *m.Method)
	case known.notification != (m.ID == nil):
		return parcel{}, rpcErrorf(m.ID, jsonrpc.CodeInvalidRequest, "%s: an id where there is none, or none where there is one", *m.Method)
	case known.params && (len(m.Params) == 0 || string(m.Params) == "null"):
		return parcel{}, rpcErrorf(m.ID, jsonrpc.CodeInvalidParams, "%s needs params", *m.Method)
	case len(m.Params) > 0 && m.Params[0] != '{' && string(m.Params) != "null":
		return parcel{}, rpcErrorf(m.ID, jsonrpc.CodeInvalidParams, "%s: params must be an object", *m.Method)
	}
	return parcel{initialize: *m.Method == "initialize", discover: *m.Method == "server/discover"}, nil
}

// measure returns how deep JSON text nests, and how many elements its outermost
// array or object has.
func measure(text []byte) (depth, elements int) {
	at, inString, escaped, something := 0, false, false, false
	for _, c := range text {
		if inString {
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				inString = false
			}
			continue
		}
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			inString = true
		case '[', '{':
			something = something || at > 0
			at++
			depth = max(depth, at)
			continue
		case ']', '}':
			at--
			continue
		case ',':
			if at == 1 {
				elements++
			}
		}
		something = true
	}
	if something {
		elements++
	}
	return depth, elements
}
