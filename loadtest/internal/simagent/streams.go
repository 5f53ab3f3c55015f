package simagent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// grant verifies a grant and that it is for this sandbox.
func (a *agent) grant(ctx context.Context, token string) (*jws.Grant, error) {
	g, err := a.fleet.keys.Grant(ctx, token)
	if err != nil {
		return nil, err
	}
	if g.Sandbox != a.sandbox {
		return nil, protocol.Errorf(protocol.KindForbidden, "the grant is for another sandbox")
	}
	return g, nil
}

// accept answers OPEN with result.
func accept(in *tunnel.Incoming, result any) (*tunnel.Stream, error) {
	body, err := json.Marshal(result)
	if err != nil {
		return nil, errors.Join(err, in.Refuse(err))
	}
	return in.Accept(protocol.Opened{Result: body})
}

// terminalStream attaches the relay to a terminal.
func (a *agent) terminalStream(ctx context.Context, in *tunnel.Incoming, w *watching) error {
	var params protocol.TerminalParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		return in.Refuse(protocol.Errorf(protocol.KindInvalid, "malformed params"))
	}
	g, err := a.grant(ctx, in.Open.Grant)
	if err == nil && !g.Allows(params.SessionID, params.PTYID, protocol.CapView) {
		err = protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal")
	}
	var t *terminal
	if err == nil {
		t, err = a.find(params.SessionID, params.PTYID)
	}
	if err != nil {
		return in.Refuse(err)
	}
	attached, opened, err := t.attach(params)
	if err != nil {
		return in.Refuse(err)
	}
	if err := attached.addGrant(g); err != nil {
		attached.close(false)
		return in.Refuse(err)
	}
	stream, err := accept(in, opened)
	if err != nil {
		attached.close(true)
		return err
	}
	w.begin()
	defer w.end()
	err = a.join(ctx, stream, attached)
	attached.close(err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errNoGrant))
	return err
}

// join moves frames between a stream and a terminal until either ends: io.EOF
// says that the relay closed the stream.
func (a *agent) join(ctx context.Context, stream *tunnel.Stream, attached *attachment) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stream.Close()
	reading.Go(func() { cancel(a.receive(ctx, stream, attached)) })
	for {
		m, err := attached.next(ctx)
		if err == nil {
			err = protocol.Write(stream, m)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		default:
			return err
		}
	}
}

// receive obeys the relay's frames until the stream ends.
func (a *agent) receive(ctx context.Context, stream *tunnel.Stream, attached *attachment) error {
	frames := protocol.NewFrameReader(stream)
	verify := func(token string) (*jws.Grant, error) { return a.grant(ctx, token) }
	for {
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		if err := attached.obey(m, verify); err != nil {
			return err
		}
	}
}

// readStream serves a part of a terminal's log.
func (a *agent) readStream(ctx context.Context, in *tunnel.Incoming) error {
	var params protocol.ReadParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		return in.Refuse(protocol.Errorf(protocol.KindInvalid, "malformed params"))
	}
	g, err := a.grant(ctx, in.Open.Grant)
	if err == nil && !g.Allows(params.SessionID, params.PTYID, protocol.CapView) {
		err = protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal")
	}
	var t *terminal
	if err == nil {
		t, err = a.find(params.SessionID, params.PTYID)
	}
	var opened protocol.ReadOpened
	if err == nil {
		opened, err = t.readable(params)
	}
	if err != nil {
		return in.Refuse(err)
	}
	stream, err := accept(in, opened)
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	for at, size := opened.From, (protocol.Resized{Cols: opened.Cols, Rows: opened.Rows}); at < opened.To; {
		m, err := t.read(at, opened.To, &size)
		if err != nil {
			return err
		}
		if err := protocol.Write(stream, m); err != nil {
			return err
		}
		if data, ok := m.(protocol.Data); ok {
			at += uint64(len(data.Bytes))
		}
	}
	return nil
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

// read returns the next DATA of the bytes [at, to), or RESIZED when the size
// there is another than size, which it changes.
func (t *terminal) read(at, to uint64, size *protocol.Resized) (protocol.Message, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cursor, err := t.log.CursorAt(at)
	if err != nil {
		return nil, err
	}
	if cols, rows := t.log.SizeAt(at); cols != size.Cols || rows != size.Rows {
		*size = protocol.Resized{Offset: at, Cols: cols, Rows: rows}
		return *size, nil
	}
	item, _, err := t.log.Next(&cursor, int(min(to-at, protocol.MaxDataBytes)))
	if err == nil && len(item.Bytes) == 0 {
		err = io.ErrUnexpectedEOF
	}
	return protocol.Data{Offset: at, Bytes: bytes.Clone(item.Bytes)}, err
}

// httpStream answers requests one after the other: the list of terminals, and
// that there is nothing else.
func (a *agent) httpStream(ctx context.Context, in *tunnel.Incoming) error {
	g, err := a.grant(ctx, in.Open.Grant)
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
