package sandboxapi

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// positionHeader says where the output in the body begins.
	positionHeader = "Fairlead-Position"
	// openTimeout bounds the wait for the sandbox's answer to OPEN.
	openTimeout = 5 * time.Second
	// pieceTimeout bounds the wait for the next piece of the log, and for the
	// client to read it.
	pieceTimeout = 15 * time.Second
)

// readLog is GET …/log?from=epoch:offset[&to=offset]: a part of a terminal's
// output, byte for byte.
func (a *API) readLog(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapView)
	var params protocol.ReadParams
	if err == nil {
		params, err = part(r.URL.Query())
	}
	var session *tunnel.Session
	if err == nil {
		session, err = a.Tunnels.Session(grant.Sandbox)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	at := target(r, grant)
	params.SessionID, params.PTYID = at.SessionID, at.PTYID
	stream, opened, err := openLog(r.Context(), session, token, params)
	if err != nil {
		a.Log.Info("log not served", "pty", at.PTYID, "err", err)
		a.refuse(w, err)
		return
	}
	defer stream.Close()
	defer context.AfterFunc(r.Context(), func() { stream.Close() })()
	h := w.Header()
	reverseproxy.Confine(h)
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatUint(opened.To-opened.From, 10))
	h.Set(positionHeader, protocol.Position{Epoch: params.Epoch, Offset: opened.From}.String())
	w.WriteHeader(http.StatusOK)
	if err := copyLog(w, stream, opened); err != nil {
		a.Log.Info("log cut short", "pty", at.PTYID, "err", err)
		panic(http.ErrAbortHandler) // otherwise half of it would pass for all
	}
}

// part reads the requested range.
func part(query url.Values) (p protocol.ReadParams, err error) {
	from, err := protocol.ParsePosition(query.Get("from"))
	if err != nil {
		return p, err
	}
	to := uint64(math.MaxInt64) // the largest offset
	if query.Has("to") {
		to, err = strconv.ParseUint(query.Get("to"), 10, 63)
	}
	if err != nil || to < from.Offset {
		return p, protocol.Errorf(protocol.KindInvalid, "to must be an offset that is not before from")
	}
	return protocol.ReadParams{Epoch: from.Epoch, From: from.Offset, To: to}, nil
}

func openLog(ctx context.Context, session *tunnel.Session, grant string, p protocol.ReadParams) (*tunnel.Stream, protocol.ReadOpened, error) {
	var opened protocol.ReadOpened
	params, err := json.Marshal(p)
	if err != nil {
		return nil, opened, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, answer, err := session.Open(ctx, protocol.LaneBulk,
		protocol.Open{Kind: protocol.StreamRead, Grant: grant, Params: params})
	if err != nil {
		return nil, opened, err
	}
	err = json.Unmarshal(answer.Result, &opened)
	if err == nil && (opened.From < p.From || opened.To < opened.From || opened.To > p.To) {
		err = fmt.Errorf("sandboxapi: asked for %d to %d, got %d to %d", p.From, p.To, opened.From, opened.To)
	}
	if err != nil {
		stream.Close()
		return nil, opened, protocol.Fault(protocol.KindUpstream, err)
	}
	return stream, opened, nil
}

// copyLog writes the output that OPENED has announced.
func copyLog(w http.ResponseWriter, stream *tunnel.Stream, opened protocol.ReadOpened) error {
	frames := protocol.NewFrameReader(stream)
	control := http.NewResponseController(w)
	for at := opened.From; at < opened.To; {
		stream.SetReadDeadline(time.Now().Add(pieceTimeout))
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		data, ok := m.(protocol.Data)
		if !ok {
			continue // a resize
		}
		end := data.Offset + uint64(len(data.Bytes))
		if data.Offset != at || end > opened.To {
			return fmt.Errorf("sandboxapi: output from %d to %d, expected from %d to %d at most", data.Offset, end, at, opened.To)
		}
		control.SetWriteDeadline(time.Now().Add(pieceTimeout)) // fails where there are no deadlines
		if _, err := w.Write(data.Bytes); err != nil {
			return err
		}
		at = end
	}
	return nil
}
