package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/tunnel"
)

// A dialer opens the hub's streams to the agent: the terminal's and its log's.
type dialer struct {
	// Static after construction.
	key      Key
	tunnels  agentstream.Tunnels
	log      *slog.Logger
	finished *atomic.Bool  // the hub's
	reads    chan struct{} // a semaphore of reads of the log

	bearer atomic.Pointer[bearer] // whose grant opens the next stream; set by run
}

// A bearer is the grant under which the hub opens its streams: one that
// represents viewers, while there are any.
type bearer struct {
	key   roster.Key
	grant roster.Grant
}

// open opens a link as soon as the sandbox is connected. It retries until it
// succeeds, ctx ends, or the agent says that the terminal is gone.
func (d *dialer) open(ctx context.Context, since *protocol.Position, wait time.Duration, post func(event)) (*link, error) {
	return agentstream.Open(ctx, d.tunnels, d.key.Sandbox, wait,
		func(ctx context.Context, session *tunnel.Session) (*link, error) {
			return d.openOnce(ctx, session, since, post)
		},
		func(err error) { d.log.Info("terminal stream not opened", "pty", d.key.PTY, "err", err) })
}

// openOnce opens a link under the bearer's grant, or under another viewer's if
// the agent refuses that.
func (d *dialer) openOnce(ctx context.Context, session *tunnel.Session, since *protocol.Position, post func(event)) (*link, error) {
	for {
		b := d.bearer.Load()
		attempt, cancel := context.WithTimeout(ctx, openTimeout)
		l, err := openLink(attempt, session, d.key, b, since)
		cancel()
		if !agentstream.AboutGrant(err) {
			return l, err
		}
		refused := bearerRefused{b, err, make(chan bool, 1)}
		post(refused)
		select {
		case again := <-refused.again:
			if !again {
				return nil, err
			}
		case <-ctx.Done():
			return nil, err
		}
	}
}

// awaitLog returns the tunnel to the agent's log. If the terminal's process has
// ended, the agent may be gone too, and the wait is bounded.
func (d *dialer) awaitLog(ctx context.Context) (*tunnel.Session, error) {
	if d.finished.Load() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	session, err := d.tunnels.Wait(ctx, d.key.Sandbox)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", feed.ErrNotServed, err)
	}
	return session, nil
}

// openLog asks the agent for g, under the hub's own grant.
func (d *dialer) openLog(ctx context.Context, session *tunnel.Session, g feed.Gap) (*tunnel.Stream, *feed.LogReader, error) {
	params, err := json.Marshal(protocol.ReadParams{
		SessionID: d.key.Session, PTYID: d.key.PTY, Epoch: g.Pos.Epoch, From: g.Pos.Offset, To: g.To,
	})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, answer, err := session.Open(ctx, protocol.LaneBulk,
		protocol.Open{Kind: protocol.StreamRead, Grant: d.bearer.Load().grant.Token, Params: params})
	if err != nil {
		return nil, nil, err
	}
	var opened protocol.ReadOpened
	if err := json.Unmarshal(answer.Result, &opened); err != nil {
		opened = protocol.ReadOpened{} // it is not what was asked for
	}
	pieces, err := feed.NewLogReader(stream, opened, g)
	if err != nil {
		stream.Close()
		return nil, nil, err
	}
	return stream, pieces, nil
}
