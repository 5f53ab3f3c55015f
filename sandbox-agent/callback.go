package agent

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

const (
	callbackPath = "/control/callback"
	// maxCallbacks and maxCallbackBytes bound the callbacks that wait; the
	// oldest go first.
	maxCallbacks     = 1024
	maxCallbackBytes = 8 << 20
	// longestCallbackPause bounds the pause between two attempts.
	longestCallbackPause = 5 * time.Second
	// dropInterval is the time between two log lines about callbacks that
	// were dropped.
	dropInterval = 10 * time.Second
)

// A callback tells the control plane what became of a command.
type callback struct {
	id        protocol.CommandID
	token     string // bearer
	body      []byte
	signature []byte
	deadline  time.Time // nobody waits for it any more
}

// callbacks posts what became of commands, in the order in which they ended.
// The relay that brought the command hears of it as well: this is for when it
// doesn't pass that on.
type callbacks struct {
	// Static after construction.
	agent *Agent
	wake  chan struct{}

	// Guarded by mu.
	mu      sync.Mutex
	queue   []callback
	bytes   int
	dropped uint64    // for want of room or of time
	logged  time.Time // when that was last said
}

func newCallbacks(a *Agent) *callbacks { return &callbacks{agent: a, wake: make(chan struct{}, 1)} }

// add queues the callback of a command that was executed. It waits for nothing.
func (c *callbacks) add(command *jws.Command, result protocol.Result) {
	if command.Reply == nil || command.Reply.CallbackToken == "" {
		return
	}
	if !validReply(command.Reply.URL) {
		c.agent.log.Warn("the command's reply.url is not https; its callback isn't sent", "id", command.CommandID)
		return
	}
	next := callback{
		id: command.CommandID, token: command.Reply.CallbackToken, body: result.Callback, signature: result.Signature,
		deadline: command.Deadline().Add(protocol.ClockSkew),
	}
	c.mu.Lock()
	c.queue = append(c.queue, next)
	c.bytes += len(next.body)
	for len(c.queue) > maxCallbacks || c.bytes > maxCallbackBytes && len(c.queue) > 1 {
		c.drop()
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// validReply reports whether a reply.url is one that a control plane may have.
// It is checked and never dialled: callbacks go to the control plane that the
// agent knows, whatever a command says.
func validReply(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	if u.Scheme == "https" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && ip.IsLoopback())
}

// drop gives the oldest callback up. It is called with mu held.
func (c *callbacks) drop() {
	c.bytes -= len(c.queue[0].body)
	c.queue[0] = callback{}
	c.queue = c.queue[1:]
	c.dropped++
	if now := time.Now(); now.Sub(c.logged) >= dropInterval {
		c.logged = now
		c.agent.log.Warn("callbacks dropped", "since_start", c.dropped)
	}
}

// first returns the oldest callback that somebody still waits for.
func (c *callbacks) first(now time.Time) (callback, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && now.After(c.queue[0].deadline) {
		c.drop()
	}
	if len(c.queue) == 0 {
		return callback{}, false
	}
	return c.queue[0], true
}

// done takes the callback of id out, unless it has been dropped.
func (c *callbacks) done(id protocol.CommandID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 && c.queue[0].id == id {
		c.bytes -= len(c.queue[0].body)
		c.queue[0] = callback{}
		c.queue = c.queue[1:]
	}
}

// keep posts callbacks until ctx ends.
func (c *callbacks) keep(ctx context.Context) {
	pause := controlplane.Backoff{Longest: longestCallbackPause}
	for {
		next, ok := c.first(time.Now())
		if !ok {
			select {
			case <-c.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := c.post(ctx, next)
		switch {
		case err == nil:
			pause.Reset()
			c.done(next.id)
		case ctx.Err() != nil:
			return
		case controlplane.Final(err):
			c.agent.log.Warn("callback refused", "id", next.id, "err", err)
			c.done(next.id)
		default:
			c.agent.log.Debug("callback not sent yet", "id", next.id, "err", err)
			if controlplane.Sleep(ctx, pause.Next()) != nil {
				return
			}
		}
	}
}

func (c *callbacks) post(ctx context.Context, next callback) error {
	header := http.Header{}
	header.Set("Authorization", "Bearer "+next.token)
	header.Set(protocol.SignatureHeader, base64.StdEncoding.EncodeToString(next.signature))
	return c.agent.controlPlane.Post(ctx, callbackPath, header, next.body)
}
