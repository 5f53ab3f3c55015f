package hub

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// readTimeout bounds the wait for the next piece of the log.
	readTimeout = 10 * time.Second
	// idleRead is how long a read of the log stays open for a viewer that takes
	// nothing.
	idleRead = time.Second
	// maxReadFailures is how many temporary read failures in a row move the viewer
	// ahead.
	maxReadFailures = 8
)

// errIdle says that the viewer takes nothing now.
var errIdle = errors.New("hub: the viewer takes nothing")

// backfill reads the agent's log for v until v reaches the ring, must be moved
// ahead, or ctx ends.
func (v *Viewer) backfill(ctx context.Context) {
	reads, reader := v.hub.dial.reads, &v.reader
	failures, last := 0, uint64(0)
	for wait := time.Duration(0); pause.For(ctx, wait) == nil; {
		session, err := v.hub.dial.awaitLog(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case reads <- struct{}{}:
		case <-ctx.Done():
			return
		}
		g, ok := reader.Missing()
		if ok && err == nil {
			err = v.readLog(ctx, session, g)
		}
		<-reads
		switch {
		case !ok:
			v.socket.Wake() // the writer handles what follows
			return
		case err == nil:
			wait, failures = 0, 0
		case errors.Is(err, errIdle):
			wait, failures = 0, 0
			select {
			case <-reader.Taken():
			case <-ctx.Done():
			}
		case errors.Is(err, feed.ErrNotServed), agentstream.Final(err), failures == maxReadFailures:
			v.hub.log.Info("log not served", "pty", v.hub.key.PTY, "offset", g.Pos.Offset, "err", err)
			reader.AbandonBackfill(g.Generation, feed.ResyncLog)
		case g.Pos.Offset > last: // there was progress
			wait, failures, last = agentstream.FirstPause, 1, g.Pos.Offset
		default:
			failures++
			wait = agentstream.Longer(wait)
		}
	}
}

// readLog hands v pieces of the agent's log until the end of g, or until v
// needs no more.
func (v *Viewer) readLog(ctx context.Context, session *tunnel.Session, g feed.Gap) error {
	stream, pieces, err := v.hub.dial.openLog(ctx, session, g)
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	idle := time.NewTimer(idleRead)
	defer idle.Stop()
	for {
		stream.SetReadDeadline(time.Now().Add(readTimeout))
		p, n, err := pieces.Next()
		if err != nil || len(p.Frames) == 0 {
			return err
		}
		v.hub.metrics.BackfillBytes.Add(float64(n))
		if !v.reader.Backfill(g.Generation, p) {
			return nil
		}
		v.socket.Wake()
		idle.Reset(idleRead)
		select {
		case <-v.reader.Taken():
		case <-idle.C:
			return errIdle
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
