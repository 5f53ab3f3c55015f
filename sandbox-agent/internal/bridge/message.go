package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// Codes of JSON-RPC errors that the bridge makes itself.
const (
	codeParse   = -32700
	codeInvalid = -32600
	codeFailed  = -32000 // the server isn't there, or refuses
)

// versionMember is the member of a request's _meta that names its version of the
// protocol.
const versionMember = "io.modelcontextprotocol/protocolVersion"

var (
	errSyntax  = errors.New("not JSON")
	errMessage = errors.New("not a JSON-RPC message")
)

// A message is one JSON-RPC message, or a batch of them.
type message struct {
	raw     []byte
	method  string          // "" for a reply
	id      string          // in one spelling, see spell; "" for a notification
	rawID   json.RawMessage // as it came
	params  json.RawMessage
	version string          // of the protocol, if it says one itself: then it belongs to no session
	fault   json.RawMessage // of a reply that says one
	batch   []*message      // not nil: these, and nothing of the above but raw
}

// parse reads one message. Names of members count as they are spelled, which is
// how the server reads them.
func parse(raw []byte) (*message, error) {
	m := &message{raw: raw}
	if len(raw) > 0 && raw[0] == '[' {
		var parts []json.RawMessage
		if err := json.Unmarshal(raw, &parts); err != nil {
			return nil, errSyntax
		}
		for _, part := range parts {
			one, err := parse(part)
			if err != nil || one.batch != nil {
				return nil, errMessage
			}
			m.batch = append(m.batch, one)
		}
		if m.batch == nil {
			return nil, errMessage
		}
		return m, nil
	}
	var members map[string]json.RawMessage
	var syntax *json.SyntaxError
	switch err := json.Unmarshal(raw, &members); {
	case errors.As(err, &syntax):
		return nil, errSyntax
	case err != nil || members == nil:
		return nil, errMessage
	}
	if method, ok := members["method"]; ok {
		if json.Unmarshal(method, &m.method) != nil || m.method == "" {
			return nil, errMessage
		}
	}
	if id, ok := members["id"]; ok && !isNull(id) {
		if m.id = spell(id); m.id == "" {
			return nil, errMessage
		}
		m.rawID = id
	}
	m.params = members["params"]
	if m.method != "" {
		m.version = m.word("_meta", versionMember)
	}
	_, result := members["result"]
	m.fault = members["error"]
	if m.method == "" && !result && m.fault == nil {
		return nil, errMessage
	}
	return m, nil
}

func isNull(v json.RawMessage) bool { return bytes.Equal(v, []byte("null")) }

// spell returns an id in the one spelling that tells it from others, "" for what
// isn't an id: 1 and 1.0 are one, 1 and "1" two.
func spell(id json.RawMessage) string {
	var text string
	if json.Unmarshal(id, &text) == nil && !isNull(id) {
		return strconv.Quote(text)
	}
	var number json.Number
	if len(id) == 0 || id[0] == '"' || json.Unmarshal(id, &number) != nil {
		return ""
	}
	if n, err := number.Int64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	if f, err := number.Float64(); err == nil {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return number.String()
}

// isReply reports whether m answers a request, or is a batch of nothing else.
func (m *message) isReply() bool {
	for _, one := range m.parts() {
		if one.method != "" {
			return false
		}
	}
	return true
}

// parts returns the messages of a batch, or m itself.
func (m *message) parts() []*message {
	if m.batch != nil {
		return m.batch
	}
	return []*message{m}
}

// calls returns those of m that want an answer.
func (m *message) calls() []*message {
	var list []*message
	for _, one := range m.parts() {
		if one.method != "" && one.id != "" {
			list = append(list, one)
		}
	}
	return list
}

// member returns the member of m's params that path leads to, nil if none.
func (m *message) member(path ...string) json.RawMessage {
	at := m.params
	if !bytes.Contains(at, []byte(path[len(path)-1])) && !bytes.ContainsRune(at, '\\') {
		return nil // params can be large, and most lack what is looked for
	}
	for _, name := range path {
		var members map[string]json.RawMessage
		if json.Unmarshal(at, &members) != nil {
			return nil
		}
		at = members[name]
	}
	return at
}

// word returns the member of m's params that path leads to, if it is a string.
func (m *message) word(path ...string) string {
	var text string
	if json.Unmarshal(m.member(path...), &text) != nil {
		return ""
	}
	return text
}

// failure returns an answer that says that the bridge could not do it. A nil id
// stands for one that isn't known.
func failure(id json.RawMessage, code int, text string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	type fault struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	m, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   fault           `json:"error"`
	}{"2.0", id, fault{code, text}})
	if err != nil {
		return nil // an id that is no JSON; parse lets none through
	}
	return m
}

// notification returns a message that wants no answer.
func notification(method string, params any) []byte {
	m, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{"2.0", method, params})
	if err != nil {
		return nil // params are ours
	}
	return m
}

// idWithin returns the id of a request of which only the beginning is valid, or
// at hand; nil if it isn't found.
func idWithin(text []byte) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		if name == "id" && spell(value) != "" {
			return value
		}
	}
}
