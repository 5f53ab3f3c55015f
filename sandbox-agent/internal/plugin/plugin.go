// Package plugin leads people's WebSockets to programs of a session's terminals
// that have registered a port of their own on loopback under a name.
package plugin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

const (
	// maxSockets bounds the open sockets of all plugins, and maxPerPerson those of one
	// person, who may use any number of relays.
	maxSockets   = 512
	maxPerPerson = 128
)

var _ interface {
	feature.Router
	feature.Ender
	feature.SessionEnder
	prometheus.Collector
} = (*Plugins)(nil)

// switching is the answer to a relay, behind which frames come.
const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + pluginsocket.Upgrade + "\r\n\r\n"

// Options configure Plugins. All must be set.
type Options struct {
	Ports     Ports
	Terminals Terminals
	Log       *slog.Logger
}

// Plugins are those of all sessions. It is safe for concurrent use.
type Plugins struct {
	// Static after construction.
	*metrics // a collector, too
	known    *registry
	upstream upstream
	log      *slog.Logger
	lives    lives // has its own lock

	mu sync.Mutex
	// Guarded by mu.
	sockets int
	of      map[protocol.UserID]int // sockets, by person
}

// New returns Plugins without any.
func New(opts Options) *Plugins {
	known := &registry{ports: opts.Ports, terminals: opts.Terminals, names: names{}}
	return &Plugins{
		metrics: newMetrics(known), known: known, upstream: upstream{opts.Ports, loopback{}}, log: opts.Log, of: map[protocol.UserID]int{},
	}
}

// Register gives a port of a terminal's program a name in its session. The caller
// has seen the terminal's secret. It fails with kind invalid, forbidden for a port
// that isn't the terminal's own, not_found when nothing listens there, conflict when
// another terminal has the name, and too_many.
func (p *Plugins) Register(session protocol.SessionID, pty protocol.PTYID, offer pluginsocket.Offer) (pluginsocket.Info, error) {
	info, err := p.known.register(session, pty, offer)
	p.registered(err)
	if err == nil {
		p.log.Debug("plugin registered", "session", session, "pty", pty, "name", offer.Name, "port", offer.Port)
	}
	return info, err
}

// TerminalEnded implements [feature.Ender].
func (p *Plugins) TerminalEnded(t feature.Terminal) { p.known.terminalEnded(t.Session, t.PTY) }

// SessionEnded implements [feature.SessionEnder].
func (p *Plugins) SessionEnded(session protocol.SessionID) error {
	p.known.sessionEnded(session)
	return nil
}

// Routes implements [feature.Router].
func (p *Plugins) Routes(mux *http.ServeMux) {
	route.GetJSON(mux, "plugins", protocol.CapPlugins, func(session protocol.SessionID) any { return p.known.list(session) })
	route.Get(mux, "plugin-ws/{name}", protocol.CapPlugins, p.serveSocket)
	route.Put(mux, "plugin-sockets/{handle}", protocol.CapPlugins, p.lives.renew)
}

// enter counts one more socket of a person.
func (p *Plugins) enter(user protocol.UserID) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sockets >= maxSockets || p.of[user] >= maxPerPerson {
		return nil, protocol.Errorf(protocol.KindTooMany, "too many sockets of plugins are open")
	}
	p.sockets++
	p.metrics.open.Inc()
	p.of[user]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sockets--
		p.metrics.open.Dec()
		if p.of[user]--; p.of[user] == 0 {
			delete(p.of, user)
		}
	}, nil
}

// serveSocket is GET /sessions/{sid}/plugin-ws/{name}: it answers at once, and keeps what
// the client sends until the plugin has answered. From then on a Close frame says
// what is wrong.
func (p *Plugins) serveSocket(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	if r.Header.Get("Upgrade") != pluginsocket.Upgrade {
		return protocol.Errorf(protocol.KindInvalid, "this route is upgraded to %s", pluginsocket.Upgrade)
	}
	leave, err := p.enter(route.GrantOf(r).Subject)
	if err != nil {
		p.metrics.ended.WithLabelValues(endedTooMany).Inc()
		return err
	}
	defer leave()
	defer p.lives.add(handleOf(r, session, r.Header.Get(pluginsocket.Handle)), route.LifeOf(r))()
	conn, buffers, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return protocol.Fault(protocol.KindInternal, err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(conn, switching); err != nil {
		return nil //nolint:nilerr // the relay is gone
	}
	early, _ := buffers.Reader.Peek(buffers.Reader.Buffered())
	client := newEnd(conn, bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn), wsframe.Window), false)
	how := p.serve(r.Context(), client, session, r.PathValue("name"))
	p.metrics.ended.WithLabelValues(how).Inc()
	p.log.Debug("plugin socket ended", "session", session, "reason", how)
	return nil
}

// serve serves a socket until it ends, and returns how it has.
func (p *Plugins) serve(ctx context.Context, client *end, session protocol.SessionID, name string) (how string) {
	if !pluginsocket.ValidName(name) {
		client.tell(invalidName)
		return endedInvalid
	}
	e := p.known.find(session, name)
	if e == nil {
		client.tell(notRunning)
		return endedMissing
	}
	plugin, err := p.meet(ctx, client, e)
	switch {
	case errors.Is(err, errNotRunning):
		p.known.forget(session, name, e)
		client.tell(notRunning)
		return endedMissing
	case errors.As(err, new(*wsframe.ReadError)):
		return endedGone
	case err != nil:
		p.log.Debug("plugin not reached", "session", session, "name", name, "err", err)
		client.tell(upstreamError)
		return endedUpstream
	}
	return join(client, plugin)
}

// meet opens the plugin's WebSocket while it keeps what the client sends, up to a
// window; the rest is held back. A client that goes meanwhile isn't waited for.
func (p *Plugins) meet(ctx context.Context, client *end, e *entry) (plugin *end, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan struct{})
	go func() { // meet waits for it
		plugin, err = p.upstream.dial(ctx, e)
		client.conn.SetReadDeadline(time.Unix(1, 0)) // interrupts keep
		close(answered)
	}()
	gone := keep(client.from, answered)
	if gone != nil {
		cancel()
	}
	<-answered
	client.conn.SetReadDeadline(time.Time{})
	if gone != nil && plugin != nil {
		plugin.conn.Close()
	}
	if gone != nil {
		return nil, gone
	}
	return plugin, err
}

// keep reads ahead until answered is closed, which must interrupt a read. It fails
// when nothing comes any more.
func keep(from *bufio.Reader, answered <-chan struct{}) error {
	for from.Buffered() < from.Size() {
		select {
		case <-answered:
			return nil
		default:
		}
		_, err := from.Peek(from.Buffered() + 1)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() { // a tunnel has an error of its own
			return nil
		}
		if err != nil {
			return &wsframe.ReadError{Err: err}
		}
	}
	return nil
}
