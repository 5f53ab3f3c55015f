package link

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// readPatience is how long a relay may take for the next piece of a log. One
// that has lost interest may not say so.
const readPatience = 30 * time.Second

// read serves a part of a terminal's log. Where the log has dropped the rest
// before it was sent, the stream ends early.
func (l *Link) read(ctx context.Context, in *tunnel.Incoming) error {
	var params protocol.ReadParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		return in.Refuse(protocol.Errorf(protocol.KindInvalid, "malformed params"))
	}
	grant, err := l.grant(ctx, in.Open.Grant)
	if err != nil {
		return in.Refuse(err)
	}
	if !grant.Allows(params.SessionID, params.PTYID, protocol.CapView) {
		return in.Refuse(protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal"))
	}
	term, err := l.Host.Get(params.SessionID, params.PTYID)
	if err != nil {
		return in.Refuse(err)
	}
	reading, opened, err := term.Read(params)
	if err != nil {
		return in.Refuse(err)
	}
	stream, err := accept(in, opened)
	if err != nil {
		return err
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	for {
		m, err := reading.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		stream.SetWriteDeadline(time.Now().Add(readPatience))
		if err := protocol.Write(stream, m); err != nil {
			return err
		}
	}
}
