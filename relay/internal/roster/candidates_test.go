package roster

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// checkCandidates compares the heap with a look at all sets.
func (r *Roster) checkCandidates() error {
	var best *set
	n := 0
	for _, s := range r.sets {
		if len(s.members) == 0 || r.open && !s.live {
			continue
		}
		n++
		if s.place == 0 || r.candidates[s.place-1] != s || s.ends != s.next().Ends {
			return fmt.Errorf("%v stands at %d and ends at %d: %+v", s.key, s.place, s.ends, s.next())
		}
		if best == nil || s.better(best) {
			best = s
		}
	}
	if n != len(r.candidates) || n > 0 && r.candidates[0] != best {
		return fmt.Errorf("%d candidates of %d; the first is not the best", len(r.candidates), n)
	}
	return nil
}

// joined returns a roster with a stream and so many people. Each one's grant lasts
// longer than those before.
func joined(people int) (r *Roster, keys []Key, grants []Grant) {
	now := time.Unix(1000, 0)
	for i := range people {
		id := fmt.Sprint("gr_", i)
		keys = append(keys, Key{protocol.UserID(fmt.Sprint("usr_", i)), 0})
		grants = append(grants, Grant{ID: protocol.GrantID(id), Ends: int64(2000 + i), Token: id})
	}
	r = New(wait, keys[0], grants[0])
	r.Opened(keys[0], grants[0], "", now)
	r.Pump()
	for i := range people {
		_, effects := r.Join(keys[i], grants[i], now)
		for _, e := range effects {
			if e, ok := e.(Ask); ok {
				r.Answer(e.Handle, grants[i].ID, true, now)
			}
		}
	}
	return r, keys, grants
}

// BenchmarkBearerLeaves lets the one whose grant opens streams leave, so that
// another has to be chosen, and come back.
func BenchmarkBearerLeaves(b *testing.B) {
	for _, people := range []int{1_000, 5_000} {
		b.Run(fmt.Sprint(people), func(b *testing.B) {
			r, keys, grants := joined(people)
			last, now := people-1, time.Unix(1000, 0)
			for b.Loop() {
				if key, _ := r.Bearer(); key != keys[last] {
					b.Fatalf("%v bears", key)
				}
				r.Leave(keys[last], grants[last].ID, false, now)
				_, effects := r.Join(keys[last], grants[last], now)
				for _, e := range effects {
					if e, ok := e.(Ask); ok {
						r.Answer(e.Handle, grants[last].ID, true, now)
					}
				}
			}
		})
	}
}

// TestBearersLeave: whoever leaves, the one whose grant lasts longest opens the
// next stream.
func TestBearersLeave(t *testing.T) {
	const people = 50
	r, keys, grants := joined(people)
	for i := people - 1; i >= 0; i-- {
		if key, g := r.Bearer(); key != keys[i] || g != grants[i] {
			t.Fatalf("%v bears, want %v", key, keys[i])
		}
		r.Leave(keys[i], grants[i].ID, false, time.Unix(1000, 0))
		if err := r.checkCandidates(); err != nil {
			t.Fatal(err)
		}
	}
}
