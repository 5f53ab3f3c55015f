package terminal

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Two relays are attached to one terminal, and users present at either. Each
// test is named after the case of turn-taking that it shows.

// relays runs f with two relays' attachments, at each of which alice and bob may
// control the terminal.
func relays(t *testing.T, f func(t *testing.T, r *rig, a, b *viewer)) {
	t.Helper()
	bubble(t, func(t *testing.T, r *rig) {
		a, b := r.attach(t, nil), r.attach(t, nil)
		for i, v := range []*viewer{a, b} {
			v.mayControl(alice, protocol.GrantID(fmt.Sprintf("gr_alice%d", i)))
			v.mayControl(bob, protocol.GrantID(fmt.Sprintf("gr_bob%d", i)))
		}
		f(t, r, a, b)
	})
}

// hand makes holder the controller through v and tells the other relay's viewer.
func (v *viewer) hand(holder protocol.UserID, other *viewer) uint64 {
	v.t.Helper()
	term := v.propose(holder).Lease.Term
	if m := want[protocol.Leased](other); m.Lease.Holder != holder || m.Lease.Term != term {
		v.t.Fatalf("the other relay heard %+v", m)
	}
	return term
}

func (v *viewer) sockets(user protocol.UserID, n int) {
	v.Holder(protocol.Holder{User: user, Sockets: n})
}

// TestTwoProposals: of two relays that propose at once one wins, and both know
// who.
func TestTwoProposals(t *testing.T) {
	relays(t, func(t *testing.T, _ *rig, a, b *viewer) {
		a.Propose(protocol.LeaseProposal{ID: 1, Next: protocol.LeaseNext{Holder: alice, GrantID: "gr_alice0"}})
		b.Propose(protocol.LeaseProposal{ID: 2, Next: protocol.LeaseNext{Holder: bob, GrantID: "gr_bob1"}})
		won, told, lost := want[protocol.Leased](a), want[protocol.Leased](b), want[protocol.Leased](b)
		if won.ID != 1 || won.Refused != "" || told.ID != 0 || lost.ID != 2 || lost.Refused == "" || told.Lease != won.Lease || lost.Lease != won.Lease {
			t.Errorf("%+v, %+v, %+v", won, told, lost)
		}
		a.nothing()
		// A relay proposes with its own viewers' grants only.
		b.Propose(protocol.LeaseProposal{ID: 3, ExpectRevision: won.Lease.Revision, Next: protocol.LeaseNext{Holder: alice, GrantID: "gr_alice0"}})
		if m := want[protocol.Leased](b); m.Refused == "" {
			t.Errorf("%+v", m)
		}
	})
}

// TestKeysInFlight is case 44: control goes from alice to bob and back, and only
// then a key arrives that she typed in her first term.
func TestKeysInFlight(t *testing.T) {
	relays(t, func(t *testing.T, r *rig, a, b *viewer) {
		first := a.hand(alice, b)
		b.hand(bob, a)
		second := b.hand(alice, a)
		a.typed(first, 1, "old")
		a.wantRefused(1, protocol.RefusedStaleTerm)
		b.typed(first, 1, "old") // sent again through the other relay
		b.wantRefused(1, protocol.RefusedStaleTerm)
		a.typed(second, 2, "new")
		a.wantAck(2)
		if got := r.dev.take(); got != "new" {
			t.Errorf("wrote %q", got)
		}
	})
}

// TestReconnectInTime is case 45: alice leaves one relay and comes back through
// the other.
func TestReconnectInTime(t *testing.T) {
	const ms = time.Millisecond
	for away, kept := range map[time.Duration]bool{9999 * ms: true, 10_000 * ms: false, 10_001 * ms: false} {
		relays(t, func(t *testing.T, r *rig, a, b *viewer) {
			term := a.hand(alice, b)
			a.sockets(alice, 0)
			if m := want[protocol.Leased](b); m.Lease.State != protocol.LeaseGrace {
				t.Fatalf("%+v", m)
			}
			time.Sleep(away)
			synctest.Wait()
			b.sockets(alice, 1)
			m := want[protocol.Leased](b)
			if (m.Lease.State == protocol.LeaseHeld) != kept || m.Lease.Term != term {
				t.Errorf("back after %v: %+v", away, m)
			}
			b.nothing()
			b.typed(term, 1, "x")
			if kept {
				b.wantAck(1)
			} else {
				b.wantRefused(1, protocol.RefusedNotController)
			}
		})
	}
}

// TestStaleTimer is case 46: the timer of the first absence ends during the
// second, which has ten seconds of its own.
func TestStaleTimer(t *testing.T) {
	relays(t, func(t *testing.T, r *rig, a, b *viewer) {
		a.hand(alice, b)
		a.sockets(alice, 0)
		time.Sleep(protocol.ControlGrace - time.Millisecond)
		b.sockets(alice, 1)
		b.sockets(alice, 0)
		for range 3 {
			want[protocol.Leased](b)
		}
		time.Sleep(protocol.ControlGrace - time.Millisecond)
		synctest.Wait()
		b.nothing()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if m := want[protocol.Leased](b); m.Lease.State != protocol.LeaseFree {
			t.Errorf("%+v", m)
		}
		b.nothing()
	})
}

// TestOneOfTwoTabs is case 47, with the tabs at one relay and at two.
func TestOneOfTwoTabs(t *testing.T) {
	for name, close := range map[string]func(a, b *viewer){
		"of one relay":      func(a, _ *viewer) { a.sockets(alice, 2); a.sockets(alice, 1) },
		"of two relays":     func(a, b *viewer) { a.sockets(alice, 1); b.sockets(alice, 1); a.sockets(alice, 0) },
		"with its relay":    func(a, b *viewer) { a.sockets(alice, 1); b.sockets(alice, 1); a.Lose() },
		"with its stream":   func(a, b *viewer) { b.sockets(alice, 1); a.Close() },
		"and a third comes": func(a, b *viewer) { b.sockets(alice, 1); a.sockets(alice, 0); a.sockets(alice, 1); b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			relays(t, func(t *testing.T, r *rig, a, b *viewer) {
				held := a.propose(alice)
				close(a, b)
				time.Sleep(2 * protocol.ControlGrace)
				synctest.Wait()
				if o := r.attach(t, nil).opened; o.Lease != held.Lease {
					t.Errorf("%+v, was %+v", o.Lease, held.Lease)
				}
			})
		})
	}
}

// TestAbsentGrantee is case 48, as far as the agent can see it: a user who has
// no grant at the relay can't be given control.
func TestAbsentGrantee(t *testing.T) {
	relays(t, func(t *testing.T, r *rig, a, b *viewer) {
		a.hand(alice, b)
		for _, next := range []protocol.LeaseNext{{Holder: "usr_carol", GrantID: "gr_carol"}, {Holder: "usr_carol", GrantID: "gr_bob0"}} {
			a.Propose(protocol.LeaseProposal{ID: 5, ExpectRevision: r.revision(), Next: next})
			if m := want[protocol.Leased](a); m.Refused == "" || m.Lease.Holder != alice {
				t.Errorf("%+v", m)
			}
		}
		b.nothing()
	})
}

// TestTakeoverMidPaste is case 49: a coding agent takes control while a paste is
// half written, in the middle of a character. Not one byte more is, and whoever
// pasted is told.
func TestTakeoverMidPaste(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v, other := r.attach(t, nil), r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		want[protocol.Leased](other)
		r.dev.setRoom(len("\x1b[200~gr\xc3"))
		v.typed(term, 1, "\x1b[200~grün")
		v.typed(term, 2, "\x1b[201~")
		cli := r.start(t)
		other.wantAgent(protocol.AgentRunning)
		other.wantLease(protocol.AgentHolder, term+1)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, term+1)
		v.wantRefused(1, protocol.RefusedAgentRunning)
		v.wantRefused(2, protocol.RefusedAgentRunning)
		v.typed(term, 3, "late") // and what is still on its way
		v.wantRefused(3, protocol.RefusedAgentRunning)
		v.typed(term, 1, "\x1b[200~grün") // and sent again
		v.wantRefused(1, protocol.RefusedAgentRunning)
		r.dev.setRoom(100)
		synctest.Wait()
		if got := r.dev.take(); got != "\x1b[200~gr\xc3" {
			t.Errorf("wrote %q", got)
		}
		// The same, as it goes on after a pause: the agent's own PTY.
		r.pause(t)
		for range 2 {
			v.next()
		}
		cli.dev.setRoom(1)
		v.typed(term+2, 4, "né")
		r.resume(t)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, term+3)
		v.wantRefused(4, protocol.RefusedAgentRunning)
		cli.dev.setRoom(100)
		synctest.Wait()
		if got := cli.dev.take(); got != "n" {
			t.Errorf("wrote %q", got)
		}
	})
}

// TestRevokeBeforeEnter is case 50: control is taken away between a line and the
// Enter that would run it, in each way there is.
func TestRevokeBeforeEnter(t *testing.T) {
	for name, take := range map[string]func(r *stageRig, v *viewer){
		"given back":      func(_ *stageRig, v *viewer) { v.propose("") },
		"handed over":     func(_ *stageRig, v *viewer) { v.propose(bob) },
		"grant revoked":   func(r *stageRig, _ *viewer) { r.host.RevokeGrants("gr_1") },
		"grant expired":   func(*stageRig, *viewer) { time.Sleep(10*time.Minute + time.Second) },
		"grace over":      func(_ *stageRig, v *viewer) { v.sockets(alice, 0); time.Sleep(protocol.ControlGrace) },
		"agent takes":     func(r *stageRig, _ *viewer) { r.start(t) },
		"agent was there": func(r *stageRig, _ *viewer) { r.start(t).quit(0) },
	} {
		t.Run(name, func(t *testing.T) {
			stageBubble(t, func(t *testing.T, r *stageRig) {
				v := r.attach(t, nil)
				if err := v.AddGrant(grantOf(bob, "gr_b", time.Hour), 0); err != nil { // keeps the stream
					t.Fatal(err)
				}
				term := v.propose(alice).Lease.Term
				v.typed(term, 1, "rm -rf /")
				v.wantAck(1)
				take(r, v)
				synctest.Wait()
				v.typed(term, 2, "\r")
				for refused := false; !refused; {
					m := v.next()
					if _, acked := m.(protocol.InputAck); acked {
						t.Fatalf("%+v", m)
					}
					_, refused = m.(protocol.InputRefused)
				}
				if got := r.dev.take(); got != "rm -rf /" {
					t.Errorf("wrote %q", got)
				}
			})
		})
	}
}

// TestRelayDies is case 51: the controller's relay dies, with keys on the way.
// They come back through the other one in time and go on, each key once; or the
// terminal is released, once.
func TestRelayDies(t *testing.T) {
	for name, end := range map[string]func(*viewer){"lost": func(v *viewer) { v.Lose() }, "closed": func(v *viewer) { v.Close() }} {
		for _, back := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, back %v", name, back), func(t *testing.T) {
				relays(t, func(t *testing.T, r *rig, a, b *viewer) {
					term := a.hand(alice, b)
					a.typed(term, 1, "a")
					r.dev.setRoom(0)
					a.typed(term, 2, "b")
					a.typed(term, 3, "c")
					end(a)
					if m := want[protocol.Leased](b); m.Lease.State != protocol.LeaseGrace {
						t.Fatalf("%+v", m)
					}
					if !back {
						time.Sleep(protocol.ControlGrace)
						synctest.Wait()
						if m := want[protocol.Leased](b); m.Lease.State != protocol.LeaseFree {
							t.Fatalf("%+v", m)
						}
						time.Sleep(time.Minute)
						synctest.Wait()
						b.nothing()
						r.dev.setRoom(100)
						synctest.Wait()
						if got := r.dev.take(); got != "a" {
							t.Errorf("wrote %q", got)
						}
						return
					}
					time.Sleep(protocol.ControlGrace / 2)
					b.sockets(alice, 1)
					if m := want[protocol.Leased](b); m.Lease.State != protocol.LeaseHeld || m.Lease.Term != term {
						t.Fatalf("%+v", m)
					}
					for seq, key := range []string{"a", "b", "c", "d"} {
						b.typed(term, uint64(seq+1), key)
					}
					r.dev.setRoom(100)
					for last := uint64(0); last < 4; {
						last = want[protocol.InputAck](b).Seq
					}
					if got := r.dev.take(); got != "abcd" {
						t.Errorf("wrote %q", got)
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					b.nothing()
				})
			})
		}
	}
}

// TestRelayDiesUnderAnAgent: an agent's control doesn't hang on any relay.
func TestRelayDiesUnderAnAgent(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		v.propose(alice)
		cli := r.start(t)
		v.Lose()
		time.Sleep(time.Minute)
		late := r.attach(t, nil)
		if o := late.opened; o.Lease.Holder != protocol.AgentHolder || o.Agent == nil || o.Agent.State != protocol.AgentRunning || !o.Claimed {
			t.Fatalf("%+v", o)
		}
		late.sockets(alice, 1) // back before the agent yields, with no grant yet
		cli.quit(0)
		late.wantAgent(protocol.AgentStopped)
		if l := late.wantLease(alice, 3); l.GrantID != "gr_1" { // which hasn't ended
			t.Errorf("%+v", l)
		}
		if !strings.Contains(string(want[protocol.Data](late).Bytes), "\x1b[!p") {
			t.Error("the screen is as the agent left it")
		}
	})
}
