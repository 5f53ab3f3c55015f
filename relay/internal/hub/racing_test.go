package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// A lessor is a sandbox whose terminal has a lease register, and as many relays
// as a test wants. What is typed says who typed it.
type lessor struct {
	t         *testing.T
	authority *relaytest.Authority
	sets      []*Set

	// Guarded by mu.
	mu       sync.Mutex
	register *lease.Register
	streams  map[*tunnel.Stream]map[protocol.UserID]int // who is present
	written  int
	stolen   []string // what was written for somebody who hadn't control
}

func newLessor(t *testing.T, relays int) *lessor {
	l := &lessor{
		t: t, authority: relaytest.NewAuthority(t), register: lease.New(),
		streams: map[*tunnel.Stream]map[protocol.UserID]int{},
	}
	for range relays {
		agent, relay := tunneltest.Pair(t)
		tunnels := &relaytest.Tunnels{}
		tunnels.Connect(relay)
		relaytest.Answer(t, agent, l.answer)
		set := NewSet(tunnels, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
		l.sets = append(l.sets, set)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			set.Close(ctx)
		})
	}
	return l
}

// answer serves one terminal stream.
func (l *lessor) answer(in *tunnel.Incoming) {
	l.mu.Lock()
	result, err := json.Marshal(protocol.TerminalOpened{
		Epoch: 7, Cols: 80, Rows: 24, Claimed: true, Lease: l.register.Lease(time.Now()),
	})
	if err != nil {
		l.t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		l.mu.Unlock()
		return
	}
	defer stream.Close()
	present := map[protocol.UserID]int{}
	l.streams[stream] = present
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.streams, stream)
	}()
	frames := protocol.NewFrameReader(stream)
	for {
		frame, err := frames.Next()
		if err != nil {
			return
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			l.t.Error(err)
			return
		}
		l.mu.Lock()
		l.obey(stream, present, m)
		l.mu.Unlock()
	}
}

// obey acts on one message of a relay. The caller holds mu.
func (l *lessor) obey(stream *tunnel.Stream, present map[protocol.UserID]int, m protocol.Message) {
	switch m := m.(type) {
	case protocol.Holder:
		present[m.User] = m.Sockets
		if l.register.Sockets(m.User, l.sockets(m.User), time.Now()) {
			l.tell(nil)
		}
	case protocol.LeaseProposal:
		answer := protocol.Leased{ID: m.ID}
		now, err := l.register.Propose(m, max(l.sockets(m.Next.Holder), 1), time.Now())
		if err != nil {
			answer.Refused = err.Error()
		}
		answer.Lease = now
		protocol.Write(stream, answer)
		if err == nil {
			l.tell(stream)
		}
	case protocol.GrantAdd:
		protocol.Write(stream, protocol.Granted{Handle: m.Handle})
	case protocol.Input:
		if reason, ok := l.register.Check(m.Term); !ok {
			protocol.Write(stream, protocol.InputRefused{Client: m.Client, Seq: m.Seq, Reason: reason})
			return
		}
		holder := l.register.Lease(time.Now()).Holder
		if l.written++; !strings.HasPrefix(string(m.Bytes), string(holder)+" ") {
			l.stolen = append(l.stolen, fmt.Sprintf("%q while %s has control", m.Bytes, holder))
		}
		protocol.Write(stream, protocol.InputAck{Client: m.Client, Seq: m.Seq})
	}
}

// tell tells every relay but one how the lease stands. The caller holds mu.
func (l *lessor) tell(except *tunnel.Stream) {
	for stream := range l.streams {
		if stream != except {
			protocol.Write(stream, protocol.Leased{Lease: l.register.Lease(time.Now())})
		}
	}
}

// sockets counts a user's at all relays. The caller holds mu.
func (l *lessor) sockets(user protocol.UserID) (n int) {
	for _, present := range l.streams {
		n += present[user]
	}
	return n
}

// stands returns the lease.
func (l *lessor) stands() protocol.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.register.Lease(time.Now())
}

// A racer is a user with one socket, who waits for the answer to each thing they
// do. All that comes is believed in the order in which it comes.
type racer struct {
	*watcher
	user  protocol.UserID
	seq   uint64
	term  uint64 // under which the racer has had control last
	holds bool
}

// races lets a user watch at one relay.
func (l *lessor) races(set *Set, user protocol.UserID) *racer {
	r := &racer{user: user}
	r.watcher = l.sit(set, user)
	r.until(protocol.ServerAttached)
	return r
}

func (l *lessor) sit(set *Set, user protocol.UserID) *watcher {
	l.t.Helper()
	grant, token := l.authority.Grant(func(g *jws.Grant) {
		g.Subject, g.Name, g.ID = user, string(user), protocol.GrantID("gr_"+string(user))
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	handle, err := set.Open(ctx, testKey, grant, token)
	if err != nil {
		l.t.Fatal(err)
	}
	w := &world{t: l.t}
	return w.place(handle, Guest{Grant: grant, Token: token, Counts: true, Client: string(user)})
}

// An answer is what a racer learned.
type answer struct {
	done   bool   // control changed, or what was typed is written
	queued bool   // it is in line
	term   uint64 // of the change
}

// hears takes messages until one decides what the racer did: by what is asked
// of it. An error always does.
func (r *racer) hears(decides func(kind string, m map[string]any) (answer, bool)) answer {
	for {
		it := r.next()
		if it.kind == output || it.kind == closed {
			r.t.Errorf("%s got %s", r.user, it)
			return answer{}
		}
		var m map[string]any
		it.decode(r.t, &m)
		r.believe(it.kind, m)
		if a, ok := decides(it.kind, m); ok {
			return a
		}
		if it.kind == protocol.ServerError {
			return answer{}
		}
	}
}

// believe follows who has control.
func (r *racer) believe(kind string, m map[string]any) {
	controller, says := m["controller"].(string)
	if !says {
		return
	}
	term, _ := m["term"].(float64)
	switch {
	case controller == string(r.user) && uint64(term) >= r.term:
		r.term, r.holds = uint64(term), true
	case controller != string(r.user) && (term == 0 || uint64(term) >= r.term):
		r.holds = false
	}
}

// catchUp takes what has come.
func (r *racer) catchUp() {
	for it, ok := r.sink.take(); ok; it, ok = r.sink.take() {
		var m map[string]any
		it.decode(r.t, &m)
		r.believe(it.kind, m)
	}
}

// take asks for control, to get it at once or, if it may queue, in line.
func (r *racer) take(mayQueue bool) answer {
	had := r.term
	kind := protocol.ClientTakeControl
	if mayQueue {
		kind = protocol.ClientRequestControl
	}
	r.v.Say(protocol.ClientMessage{Type: kind})
	a := r.hears(func(kind string, m map[string]any) (answer, bool) {
		if r.holds && r.term > had {
			return answer{done: true, term: r.term}, true
		}
		queued := kind == protocol.ServerControlRequested && m["from"] == string(r.user)
		return answer{queued: queued}, queued
	})
	if a.queued {
		r.v.Say(protocol.ClientMessage{Type: protocol.ClientCancelRequest})
	}
	return a
}

func (r *racer) grant(to protocol.UserID) answer {
	r.v.Say(protocol.ClientMessage{Type: protocol.ClientGrantControl, To: to})
	return r.hears(func(kind string, m map[string]any) (answer, bool) {
		term, _ := m["term"].(float64)
		return answer{done: true, term: uint64(term)}, kind == protocol.ServerControlGranted && m["from"] == string(r.user)
	})
}

func (r *racer) giveBack() answer {
	r.v.Say(protocol.ClientMessage{Type: protocol.ClientRevokeControl})
	return r.hears(func(kind string, m map[string]any) (answer, bool) {
		return answer{done: true}, kind == protocol.ServerControlRevoked && m["from"] == string(r.user)
	})
}

func (r *racer) write() answer {
	r.seq++
	r.v.TypeNumbered(protocol.BrowserInput{Seq: r.seq, Term: r.term, Bytes: fmt.Appendf(nil, "%s %d", r.user, r.seq)})
	return r.hears(func(kind string, m map[string]any) (answer, bool) {
		seq, _ := m["seq"].(float64)
		decided := uint64(seq) == r.seq && (kind == protocol.ServerInputAck || kind == protocol.ServerInputRefused)
		return answer{done: kind == protocol.ServerInputAck}, decided
	})
}

// comeBack loses the socket and opens another.
func (r *racer) comeBack(l *lessor, set *Set) {
	r.leave()
	r.watcher = l.sit(set, r.user)
	r.hears(func(kind string, _ map[string]any) (answer, bool) { return answer{}, kind == protocol.ServerAttached })
}
