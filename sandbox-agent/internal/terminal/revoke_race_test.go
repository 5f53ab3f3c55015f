package terminal

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

var revokeRounds = flag.Int("terminal.revokes", 10_000, "rounds of TestNothingAfterRevoke")

// TestNothingAfterRevoke revokes the controller's grant again and again while
// they type as fast as they can: once a revocation is confirmed, not one byte
// reaches the program. Real time, so that the goroutines race.
func TestNothingAfterRevoke(t *testing.T) {
	seed := seedOf(t)
	const perTerminal = 250 // so that what is revoked stays little
	var total typingRace
	for first := 0; first < *revokeRounds && !t.Failed(); first += perTerminal {
		r := newTypingRace(t, seed+uint64(first))
		for round := range min(perTerminal, *revokeRounds-first) {
			r.run(protocol.GrantID(fmt.Sprintf("gr_%d", round)))
		}
		r.end()
		total.written, total.refused = total.written+r.written, total.refused+r.refused
	}
	t.Logf("%d rounds: %d inputs written, %d refused", *revokeRounds, total.written, total.refused)
	if total.written == 0 || total.refused == 0 {
		t.Error("nothing raced")
	}
}

// A typingRace is a terminal whose controller types while their grant is revoked.
type typingRace struct {
	*rig
	t       *testing.T
	random  *rand.Rand
	set     *jws.RevocationSet
	v       *viewer // proposes
	typist  *viewer
	terms   chan uint64 // to type under
	done    chan struct{}
	revoked atomic.Bool // and that is confirmed

	// Owned by the one who types.
	seq              uint64
	written, refused int
}

func newTypingRace(t *testing.T, seed uint64) *typingRace {
	t.Helper()
	r := &typingRace{
		rig: &rig{dev: newFakeDevice(), proc: newFakeProcess()}, t: t, random: rand.New(rand.NewPCG(seed, 0)),
		set: jws.NewRevocationSet(), terms: make(chan uint64), done: make(chan struct{}),
	}
	r.dev.offered = func(p []byte) {
		if r.revoked.Load() {
			t.Errorf("%q was written after the revocation", p)
		}
	}
	r.Terminal = newTerminal(session, protocol.PTYInfo{ID: "pty_1", Cols: 80, Rows: 24}, newProgram(r.dev, r.proc),
		site{rules: arbiter.Options{Revoked: r.set}}, slog.New(slog.DiscardHandler))
	r.set.OnChange(r.arbiter.DropRevoked)
	go r.keep(func() {}) // end waits for it
	r.v, r.typist = attach(t, r.Terminal, nil), attach(t, r.Terminal, nil)
	for _, each := range []*viewer{r.v, r.typist} {
		if err := each.AddGrant(grantOf(bob, "gr_b", time.Hour), 0); err != nil {
			t.Fatal(err)
		}
	}
	go func() { // end waits for it
		defer close(r.done)
		for term := range r.terms {
			for range 12 {
				r.press(term)
			}
			r.done <- struct{}{}
		}
	}()
	return r
}

// press types a key and counts what became of those before.
func (r *typingRace) press(term uint64) {
	r.seq++
	r.typist.typed(term, r.seq, "x")
	for m, _ := r.typist.Poll(); m != nil; m, _ = r.typist.Poll() {
		switch m.(type) {
		case protocol.InputAck:
			r.written++
		case protocol.InputRefused:
			r.refused++
		}
	}
}

// run takes control under a grant that is then revoked.
func (r *typingRace) run(id protocol.GrantID) {
	r.t.Helper()
	if err := r.v.AddGrant(grantOf(alice, id, time.Hour, protocol.CapControl), 0); err != nil {
		r.t.Fatal(err)
	}
	r.revoked.Store(false)
	r.dev.setRoom(r.random.IntN(16)) // at times there is too little, and keys wait
	r.v.Propose(protocol.LeaseProposal{ID: 1, ExpectRevision: r.revision(), Next: protocol.LeaseNext{Holder: alice, GrantID: id}})
	var held protocol.Leased
	for held.ID == 0 {
		held, _ = r.v.next().(protocol.Leased)
	}
	if held.Refused != "" {
		r.t.Fatalf("%+v", held)
	}
	r.terms <- held.Lease.Term
	for range r.random.IntN(30) {
		runtime.Gosched()
	}
	r.set.Add(id)
	r.revoked.Store(true)
	r.dev.setRoom(100)
	<-r.done
	r.press(held.Lease.Term)
}

func (r *typingRace) end() {
	close(r.terms)
	<-r.done
	r.kill()
	close(r.dev.output) // or its end is waited for
	<-r.life.gone
}
