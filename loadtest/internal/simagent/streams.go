package simagent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/terminalstream"
)

// server answers the streams of one tunnel over which a relay uses terminals.
func (a *agent) server(w *watching) *terminalstream.Server {
	return &terminalstream.Server{
		Sandbox: a.sandbox, Keys: a.fleet.keys,
		Find: func(session protocol.SessionID, pty protocol.PTYID) (terminalstream.Terminal, error) {
			return a.find(session, pty)
		},
		Watch: func() (end func()) {
			w.begin()
			return w.end
		},
	}
}

// A reading is a part of a terminal's log.
type reading struct {
	terminal *terminal
	at, to   uint64
	size     protocol.Resized // at at
}

// Read implements [terminalstream.Terminal].
func (t *terminal) Read(p protocol.ReadParams) (terminalstream.Reading, protocol.ReadOpened, error) {
	opened, err := t.readable(p)
	return &reading{t, opened.From, opened.To, protocol.Resized{Cols: opened.Cols, Rows: opened.Rows}}, opened, err
}

// readable returns the part of the log that can be read of what was asked for.
func (t *terminal) readable(p protocol.ReadParams) (protocol.ReadOpened, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.Epoch != t.log.Epoch():
		return protocol.ReadOpened{}, protocol.Errorf(protocol.KindNotFound, "the terminal has another epoch")
	case p.From > t.log.Head():
		return protocol.ReadOpened{}, protocol.Errorf(protocol.KindNotFound, "the log ends at %d", t.log.Head())
	case p.From > p.To:
		return protocol.ReadOpened{}, protocol.Errorf(protocol.KindInvalid, "the part ends before it begins")
	}
	from := max(p.From, t.log.Oldest())
	opened := protocol.ReadOpened{From: from, To: max(from, min(p.To, t.log.Head()))}
	opened.Cols, opened.Rows = t.log.SizeAt(from)
	return opened, nil
}

// Next implements [terminalstream.Reading]: the next DATA, or RESIZED where the
// size changes.
func (r *reading) Next() (protocol.Message, error) {
	if r.at == r.to {
		return nil, io.EOF
	}
	t := r.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	cursor, err := t.log.CursorAt(r.at)
	if err != nil {
		return nil, err
	}
	if cols, rows := t.log.SizeAt(r.at); cols != r.size.Cols || rows != r.size.Rows {
		r.size = protocol.Resized{Offset: r.at, Cols: cols, Rows: rows}
		return r.size, nil
	}
	item, _, err := t.log.Next(&cursor, int(min(r.to-r.at, protocol.MaxDataBytes)))
	if err == nil && len(item.Bytes) == 0 {
		err = io.ErrUnexpectedEOF
	}
	m := protocol.Data{Offset: r.at, Bytes: bytes.Clone(item.Bytes)}
	r.at += uint64(len(m.Bytes))
	return m, err
}

// httpStream answers requests one after the other: the list of terminals, and
// that there is nothing else.
func (a *agent) httpStream(ctx context.Context, in *tunnel.Incoming, by *terminalstream.Server) error {
	g, err := by.Grant(ctx, in.Open.Grant)
	if err != nil {
		return in.Refuse(err)
	}
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	for r := bufio.NewReader(stream); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, req.Body)
		if err != nil {
			return err
		}
		resp := a.respond(g, req)
		err = resp.Write(stream)
		resp.Body.Close()
		if err != nil || req.Close {
			return err
		}
	}
}

// respond answers one request.
func (a *agent) respond(g *jws.Grant, req *http.Request) *http.Response {
	status, answer := http.StatusOK, any(nil)
	session, found := strings.CutPrefix(req.URL.Path, "/sessions/")
	session, list := strings.CutSuffix(session, "/ptys")
	if found && list && req.Method == http.MethodGet && g.Allows(protocol.SessionID(session), "", protocol.CapView) {
		l := protocol.PTYList{PTYs: []protocol.PTYInfo{}, Revision: "simulated"}
		for _, t := range a.list(protocol.SessionID(session)) {
			if g.Allows(t.session, t.info.ID, protocol.CapView) {
				l.PTYs = append(l.PTYs, t.shown())
			}
		}
		answer = l
	} else {
		e := protocol.Errorf(protocol.KindUnsupported, "a simulated sandbox doesn't do that")
		status, answer = e.Kind.Status(), map[string]any{"error": e.Body()}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		panic("simagent: plain values: " + err.Error())
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
}
