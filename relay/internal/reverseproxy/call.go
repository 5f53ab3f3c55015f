package reverseproxy

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// openTimeout bounds the wait for the sandbox's answer to OPEN.
const openTimeout = 10 * time.Second

// A call is what a request needs to reach its sandbox.
type call struct {
	session *tunnel.Session
	token   string // the grant as it was presented
	request *Request
	out     *pacedWriter
	began   time.Time
	rest    rest // the body, where it isn't passed on at once; nil: it is
}

// A rest is what [httputil.ReverseProxy] leaves of an answer.
type rest interface{ pass(out *pacedWriter) }

type callKey struct{}

// open opens the stream for one request.
func open(ctx context.Context) (*tunnel.Stream, error) {
	c := ctx.Value(callKey{}).(*call)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, _, err := c.session.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: c.token})
	return stream, err
}
