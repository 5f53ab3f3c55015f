package provider

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// rpc is our side of a JSON-RPC connection whose messages are lines. It numbers
// our calls and keeps what is to be done with their results.
type rpc struct {
	version string // value of the member "jsonrpc" in what we write; "": without it
	last    int64
	noise   []byte // the end of what isn't JSON
	calls   map[int64]func(result json.RawMessage, err *rpcError)
}

// An rpcMessage is a call (ID and Method), a notification (Method alone) or the
// end of a call of ours (ID alone).
type rpcMessage struct {
	Version string          `json:"jsonrpc,omitempty"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

// An rpcError is why a call has failed.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// methodNotFound is the code of a call that we don't answer.
const methodNotFound = -32601

// text is what a person reads of the error.
func (e *rpcError) text() string {
	var data struct {
		Details string `json:"details"`
	}
	parse(e.Data, &data) // data of another form says nothing that we know
	switch {
	case data.Details != "":
		return data.Details
	case e.Message != "":
		return e.Message
	}
	return "error " + strconv.Itoa(e.Code)
}

// call writes a call; then gets what comes of it.
func (r *rpc) call(method string, params any, then func(json.RawMessage, *rpcError)) Effect {
	r.last++
	if r.calls == nil {
		r.calls = make(map[int64]func(json.RawMessage, *rpcError))
	}
	r.calls[r.last] = then
	return r.write(rpcMessage{ID: strconv.AppendInt(nil, r.last, 10), Method: method, Params: object(params)})
}

// notify writes a notification.
func (r *rpc) notify(method string, params any) Effect {
	m := rpcMessage{Method: method}
	if params != nil {
		m.Params = object(params)
	}
	return r.write(m)
}

// answer ends a call of theirs.
func (r *rpc) answer(id json.RawMessage, result any) Effect {
	return r.write(rpcMessage{ID: id, Result: object(result)})
}

// refuse ends a call of theirs that we don't know.
func (r *rpc) refuse(id json.RawMessage, method string) Effect {
	return r.write(rpcMessage{ID: id, Error: &rpcError{Code: methodNotFound, Message: "method not found: " + method}})
}

func (r *rpc) write(m rpcMessage) Effect {
	m.Version = r.version
	return Write{Bytes: encode(m)}
}

// read reads a line. It reports false of what is no message: programs print
// other things too. The end of a call of ours goes to whoever waits for it, and
// is no message either.
func (r *rpc) read(line []byte) (rpcMessage, bool) {
	var m rpcMessage
	if !parse(bytes.ToValidUTF8(line, []byte("\uFFFD")), &m) {
		r.noise = append(append(r.noise, line[max(0, len(line)-maxReason):]...), '\n')
		r.noise = r.noise[max(0, len(r.noise)-2*maxReason):]
		return m, false
	}
	if m.ID = orNil(m.ID); m.Method != "" {
		return m, true
	}
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err != nil {
		return m, false
	}
	if then, ok := r.calls[id]; ok {
		delete(r.calls, id)
		then(m.Result, m.Error)
	}
	return m, false
}
