package hub

import (
	"sync/atomic"
	"time"
)

const (
	// pingInterval is how often a quiet socket is pinged, so that no hop in
	// between takes it for dead; pongTimeout is when we do.
	pingInterval = 25 * time.Second
	pongTimeout  = 60 * time.Second
)

// A keepalive pings a viewer's socket. It pings only when nothing waits to be
// written: behind a long write a ping would say how slow the line is, and not
// whether somebody is there. Owned by the viewer's writer.
type keepalive struct {
	v     *Viewer
	timer *time.Timer
	due   atomic.Bool // set by timer
	asked time.Time   // the last ping
}

// check pings when it is time to. It returns false when the peer is gone.
func (k *keepalive) check() bool {
	if !k.due.CompareAndSwap(true, false) {
		return true
	}
	k.timer.Reset(pingInterval)
	if k.v.sink.LastHeard().Before(k.asked) { // the last ping is not answered
		return time.Since(k.asked) <= pongTimeout
	}
	k.asked = time.Now()
	return k.v.sink.Ping() == nil
}
