package uplink

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/agenttest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long tests wait for what must come.
const patience = time.Minute

// must, within and waitFor are short for those of agenttest.
var must, within, waitFor = agenttest.Must, agenttest.Within, agenttest.WaitFor

// A world is what tunnels deal with, and how they are made.
type world struct {
	t       *testing.T
	ca      *agenttest.Authority
	log     *agenttest.Log
	options Options
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ca: agenttest.NewAuthority(t), log: &agenttest.Log{}}
	w.options = Options{
		Pinned: true, // so that tests know who is first
		TLS:    w.ca.TLS(), Hello: tunneltest.Hello(), Generations: counter(), Log: w.log.Logger(),
		Patience: protocol.HandshakeTimeout, // a slow machine has no relay that was killed
	}
	return w
}

// listen starts a relay that lets admit decide, as the only one.
func (w *world) listen(admit func(*tunnel.Registration) error) *tunnel.Listener {
	w.t.Helper()
	l := w.listenAs("rl_1", originOne, admit)
	w.options.Relays = []string{l.Addr().String()}
	return l
}

func (w *world) listenAs(id protocol.RelayID, origin string, admit func(*tunnel.Registration) error) *tunnel.Listener {
	w.t.Helper()
	return w.ca.Listen(w.t, tunnel.ListenConfig{
		RelayID: id, Origin: origin,
		Admit: func(_ context.Context, r *tunnel.Registration) error { return admit(r) },
	})
}

func welcome(*tunnel.Registration) error { return nil }

// run keeps tunnels up until the test ends.
func (w *world) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- New(w.options).Run(ctx, anybody{}, host{}) }() // received below
	w.t.Cleanup(func() {
		cancel()
		must(w.t, <-ended)
	})
}

// anybody is an identity that no relay verifies.
type anybody struct{}

func (anybody) SignHello(hello *protocol.Hello, _ protocol.Challenge, _ []byte) error {
	hello.Certificate, hello.Signature = "a.b.c", []byte("signature")
	return nil
}

func (anybody) Doubted() {}

// host keeps each stream open that a relay opens.
type host struct{}

func (host) Serve(ctx context.Context, session *tunnel.Session) {
	for {
		in, err := session.Accept(ctx)
		if err != nil {
			return
		}
		stream, err := in.Accept(protocol.Opened{})
		if err != nil {
			continue
		}
		go func() { // ends with the stream
			stream.Read(make([]byte, 1))
			stream.Close()
		}()
	}
}
