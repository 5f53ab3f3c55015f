package approval

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// TestStateModel compares the state machine with the obvious model: each
// question ends once, by the first answer in its time, and whoever comes later
// gets that end.
func TestStateModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := newState(), time.Unix(0, 0)
		standing := map[string]protocol.Approval{} // of every id ever
		ends := map[string]time.Time{}
		questions := map[string]*question{}
		var ids []string
		pending := func() (n int) {
			for _, a := range standing {
				if a.State == protocol.ApprovalPending {
					n++
				}
			}
			return n
		}
		expire := func() {
			for _, q := range s.due(now) {
				s.settle(expired(q.approval, now.UnixMilli()), Reply{})
			}
			for id, a := range standing {
				if end := ends[id]; a.State == protocol.ApprovalPending && !end.IsZero() && !now.Before(end) {
					standing[id] = expired(a, now.UnixMilli())
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				about := subject{session: session, kind: protocol.ApprovalEgress, host: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "host")}
				if s.same[about] != nil || s.full(about.kind) {
					t.Skip("open")
				}
				a := protocol.Approval{
					ID: fmt.Sprint(len(ids)), Revision: 1, Kind: about.kind, SessionID: session, Host: about.host, State: protocol.ApprovalPending,
				}
				ends[a.ID] = now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "ttl")) * time.Second)
				standing[a.ID], questions[a.ID], ids = a, s.add(about, a, ends[a.ID]), append(ids, a.ID)
			},
			"ask for a tool": func(t *rapid.T) {
				c := protocol.ConversationID(rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "conversation"))
				if s.fullOfTools(c) {
					t.Skip("full")
				}
				a := protocol.Approval{
					ID: fmt.Sprint(len(ids)), Revision: 1, Kind: protocol.ApprovalTool, SessionID: session, ConversationID: c, State: protocol.ApprovalPending,
				}
				if rapid.Bool().Draw(t, "limited") { // else it waits without limit
					ends[a.ID] = now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "ttl")) * time.Second)
				}
				standing[a.ID], questions[a.ID], ids = a, s.addTool(a, nil, ends[a.ID]), append(ids, a.ID)
			},
			"cancel": func(t *rapid.T) {
				if len(ids) == 0 {
					t.Skip("nothing was asked")
				}
				expire()
				a := standing[rapid.SampledFrom(ids).Draw(t, "id")]
				if a.State != protocol.ApprovalPending || a.Kind != protocol.ApprovalTool {
					t.Skip("nothing to cancel")
				}
				standing[a.ID] = cancelled(a, now.UnixMilli())
				s.settle(standing[a.ID], Reply{})
			},
			"answer": func(t *rapid.T) {
				if len(ids) == 0 {
					t.Skip("nothing was asked")
				}
				expire()
				by := answer(rapid.SampledFrom(ids).Draw(t, "id"), rapid.SampledFrom([]protocol.Decision{protocol.AllowOnce, protocol.Deny}).Draw(t, "decision"))
				by.Revision = uint64(rapid.IntRange(1, 3).Draw(t, "revision"))
				was := standing[by.ID]
				if by.Kind = was.Kind; rapid.IntRange(0, 9).Draw(t, "another kind") == 0 {
					by.Kind = map[protocol.ApprovalKind]protocol.ApprovalKind{protocol.ApprovalTool: protocol.ApprovalEgress, protocol.ApprovalEgress: protocol.ApprovalTool}[was.Kind]
				}
				with := Reply{Message: fmt.Sprint("about ", by.ID)}
				got, applied, err := s.answer(by, now.UnixMilli())
				switch {
				case by.Kind != was.Kind:
					if protocol.KindOf(err) != protocol.KindNotFound || err == nil {
						t.Fatalf("another kind: %v", err)
					}
				case was.State != protocol.ApprovalPending:
					if err != nil || applied || !reflect.DeepEqual(got, was) {
						t.Fatalf("late: %+v, %v, %v; it stood at %+v", got, applied, err, was)
					}
				case by.Revision != was.Revision:
					if protocol.KindOf(err) != protocol.KindConflict {
						t.Fatalf("another revision: %v", err)
					}
				case err != nil || !applied || got.Decision != by.Decision || got.Revision != 2:
					t.Fatalf("in time: %+v, %v, %v", got, applied, err)
				case rapid.Bool().Draw(t, "stored"): // else the disk has failed, and nothing happened
					s.settle(got, with)
					standing[by.ID] = got
				}
			},
			"advance": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second)
				expire()
			},
			"": func(t *rapid.T) {
				tools := 0
				for _, q := range s.open {
					if q.approval.Kind == protocol.ApprovalTool {
						tools++
					}
				}
				if len(s.open) != pending() || len(s.same) != len(s.open)-tools {
					t.Fatalf("%d questions, %d about tools, %d subjects; want %d", len(s.open), tools, len(s.same), pending())
				}
				var next time.Time
				for id, a := range standing {
					settled := false
					select {
					case <-questions[id].settled:
						settled = true
					default:
					}
					if settled == (a.State == protocol.ApprovalPending) {
						t.Fatalf("%+v, settled %v", a, settled)
					}
					q := questions[id]
					if settled && (!reflect.DeepEqual(q.outcome.Approval, a) || (q.err == nil) != (a.State == protocol.ApprovalDecided) ||
						(q.outcome.Message == "about "+id) != (q.err == nil)) {
						t.Fatalf("%+v came out as %+v, %v", a, q.outcome, q.err)
					}
					if end := ends[id]; !settled && !end.IsZero() && (next.IsZero() || end.Before(next)) {
						next = end
					}
				}
				if !s.deadline().Equal(next) {
					t.Fatalf("deadline %v, want %v", s.deadline(), next)
				}
			},
		})
	})
}

// TestLogModel drives a whole log, with restarts, and follows it by position:
// what is learned from events is always what List says, and what a process has
// told the next one says, too.
func TestLogModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type step struct{ what, host, arg int }
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{rapid.IntRange(0, 12).Draw(t, "what"), rapid.IntRange(0, 3).Draw(t, "host"), rapid.IntRange(0, 40).Draw(t, "arg")}
		}), 1, 60).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			known := map[string]protocol.Approval{}
			var at *protocol.Position
			var ids []string
			follow := func() {
				list := r.List(session)
				sub, opened := r.subscribe(at)
				defer sub.Close()
				if at != nil && opened.Gap && at.Epoch == list.Epoch {
					t.Fatalf("a gap at %+v: %+v", at, opened)
				}
				for offset := opened.Offset; offset < list.Offset; offset++ {
					e, err := sub.Next(t.Context())
					must(t, err)
					if e.Offset != offset {
						t.Fatalf("offset %d, want %d", e.Offset, offset)
					}
					e.Approval.LeftMs = 0
					if waits := e.Approval.State == protocol.ApprovalPending; waits && e.Approval.Kind == protocol.ApprovalTool && e.Approval.InputSHA256 != "" && e.Approval.Input == nil {
						t.Fatalf("a question without its input: %+v", e.Approval)
					}
					known[e.Approval.ID] = e.Approval
				}
				at = &protocol.Position{Epoch: list.Epoch, Offset: list.Offset}
				said := map[string]protocol.Approval{}
				for _, a := range list.Approvals {
					a.LeftMs = 0
					said[a.ID] = a
				}
				if !reflect.DeepEqual(said, known) {
					t.Fatalf("the list says %+v, the events %+v", said, known)
				}
			}
			at = &protocol.Position{Epoch: r.List(session).Epoch}
			for _, s := range steps {
				switch {
				case s.what == 10 && s.arg < 20:
					ids = append(ids, r.askTool(ToolRequest{Forever: s.host == 0, Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, s.arg))}).ID())
				case s.what == 10:
					ids = append(ids, r.askTool(ToolRequest{TTL: time.Duration(s.arg) * time.Second}).ID())
				case s.what == 11 && len(ids) > 0:
					r.Cancel(ids[s.arg%len(ids)])
				case s.what == 12 && len(ids) > 0:
					r.DecideTool(toolAnswer(ids[s.arg%len(ids)], protocol.AllowAlways), Reply{Message: "never stored"})
				case s.what < 4:
					ids = append(ids, r.ask(fmt.Sprintf("h%d.example", s.host)).ID())
				case s.what < 7 && len(ids) > 0:
					r.Decide(answer(ids[s.arg%len(ids)], protocol.AllowOnce)) // if it is about a connection
				case s.what < 9 && s.what > 6:
					time.Sleep(time.Duration(s.arg) * time.Second)
				case len(ids) > 0: // before the first event there is no log to go on with
					r.restart()
				}
				follow()
			}
		})
	})
}

// TestRace: many decide at once, at the moment at which the question expires;
// one of them is applied, or none and it has expired, and everybody is told the
// same.
func TestRace(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	applied := 0
	for range 100 {
		r := newRig(t)
		r.Log.disk = nowhere{}
		q := egress("a.example")
		q.TTL = time.Duration(1+random.IntN(400)) * time.Microsecond
		p, err := r.Ask(q)
		must(t, err)
		const deciders = 8
		var stands [deciders]protocol.Approval
		var was [deciders]bool
		var all sync.WaitGroup
		for i := range deciders {
			by := answer(p.ID(), []protocol.Decision{protocol.AllowOnce, protocol.Deny, protocol.AllowAlways}[random.IntN(3)])
			by.UserID = protocol.UserID(fmt.Sprintf("usr_%d", i))
			all.Go(func() { stands[i], was[i], _ = r.Decide(by) })
		}
		outcome, err := p.Wait(t.Context())
		all.Wait()
		winners := 0
		for i := range deciders {
			if !reflect.DeepEqual(stands[i], stands[0]) {
				t.Fatalf("%+v and %+v", stands[i], stands[0])
			}
			if was[i] {
				winners++
				if stands[i].UserID != protocol.UserID(fmt.Sprintf("usr_%d", i)) {
					t.Fatalf("decider %d was applied: %+v", i, stands[i])
				}
			}
		}
		expired := stands[0].State == protocol.ApprovalExpired
		if winners > 1 || (err == nil) == expired || (winners == 1) == expired || outcome.Allows() != stands[0].Decision.Allows() || len(r.told) != 2 {
			t.Fatalf("%d were applied, it came out as %s: %+v", winners, outcome, stands[0])
		}
		applied += winners
		r.Close()
	}
	t.Logf("%d of 100 were decided in time", applied)
}
