package hub

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fairlead/fairlead/protocol"
)

var raceOps = flag.Int("hub.ops", 2_000, "what TestLinearizable's clients do, all together")

// Users of TestLinearizable. The zero value of a user is nobody.
var racers = []protocol.UserID{"", "usr_a", "usr_b", "usr_c", "usr_d"}

// A deed is what a racer did.
type deed struct {
	kind string // take, request, grant, give, type, return
	user int    // index into racers
	to   int    // grant
	term uint64 // type
}

// A holding is who has control: porcupine's state.
type holding struct {
	user int
	term uint64
}

// controlModel says what a deed may have come to. With strict unset what was
// refused says nothing: a relay may not have heard yet what another has done.
func controlModel(strict bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return holding{} },
		Step: func(state, input, output any) (bool, any) {
			h, d, a := state.(holding), input.(deed), output.(answer)
			if !a.done && d.kind != "start" && (!strict || d.kind == "return") {
				return true, h
			}
			return d.step(h, a)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
}

// step judges a by who has control, and returns who has it then.
func (d deed) step(h holding, a answer) (bool, holding) {
	mine := h.user == d.user
	switch d.kind {
	case "start": // not a deed: how the lease stands at first
		return true, holding{d.to, d.term}
	case "take", "request":
		switch {
		case a.done && h.user == 0:
			return a.term == h.term+1, holding{d.user, h.term + 1}
		case a.done:
			return mine && a.term == h.term, h // it was handed over meanwhile
		}
		return h.user != 0 && !mine, h // it is taken, or there is a line for it
	case "grant":
		if a.done {
			return mine && a.term == h.term+1, holding{d.to, h.term + 1}
		}
		return true, h // whom it was meant for is not there, perhaps
	case "give":
		if a.done {
			return mine, holding{0, h.term}
		}
		return !mine, h
	case "type":
		return a.done == (mine && d.term == h.term), h
	}
	return true, h
}

// TestLinearizable has clients ask, take, hand over, give back, type and come
// back, all at once. What each of them was told must be explained by one order
// of what they did, and nothing may be written for who hadn't control then.
func TestLinearizable(t *testing.T) {
	for _, relays := range []int{1, 2} {
		t.Run(fmt.Sprint(relays, " relays"), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			race(t, relays, seed, *raceOps/2)
		})
	}
}

func race(t *testing.T, relays int, seed uint64, ops int) {
	l := newLessor(t, relays)
	model := controlModel(relays == 1)
	var all []*racer
	for i, user := range racers[1:] {
		all = append(all, l.races(l.sets[i%relays], user))
	}
	// In parts, each from where the one before ended: porcupine's work grows
	// faster than a history.
	const each = 25
	outcomes := map[string]int{}
	for part := 0; part*each*len(all) < ops || part*each*len(all) < 10*ops && len(missing(outcomes)) > 0; part++ {
		from := l.stands()
		start := deed{kind: "start", term: from.Term}
		for i, user := range racers {
			if user == from.Holder {
				start.to = i
			}
		}
		history := []porcupine.Operation{{Input: start, Output: answer{}, Call: -2, Return: -1}}
		histories := make([][]porcupine.Operation, len(all))
		var running sync.WaitGroup
		begin := time.Now()
		for i, r := range all {
			running.Go(func() { // race waits below
				random := rand.New(rand.NewPCG(seed, uint64(part*len(all)+i)))
				for range each {
					call := time.Since(begin).Nanoseconds()
					d, a := r.acts(l, l.sets[i%relays], i+1, random)
					histories[i] = append(histories[i], porcupine.Operation{
						ClientId: i + 1, Input: d, Output: a, Call: call, Return: time.Since(begin).Nanoseconds(),
					})
				}
			})
		}
		running.Wait()
		for _, h := range histories {
			for _, o := range h {
				outcomes[fmt.Sprint(o.Input.(deed).kind, " ", o.Output.(answer).done)]++
			}
			history = append(history, h...)
		}
		if result := porcupine.CheckOperationsTimeout(model, history, 3*patience); result != porcupine.Ok {
			t.Fatalf("part %d is %s: %s", part, result, describe(model, history))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.stolen) > 0 {
		t.Errorf("written: %q", l.stolen)
	}
	t.Log(outcomes)
	if never := missing(outcomes); len(never) > 0 {
		t.Errorf("%q never happened: the history shows nothing", never)
	}
}

// missing returns what hasn't happened of what must.
func missing(outcomes map[string]int) (never []string) {
	for _, want := range []string{"take true", "take false", "grant true", "give true", "type true", "type false", "return false", "request true"} {
		if outcomes[want] == 0 {
			never = append(never, want)
		}
	}
	return never
}

// acts does one thing.
func (r *racer) acts(l *lessor, set *Set, me int, random *rand.Rand) (deed, answer) {
	r.catchUp()
	d := deed{user: me}
	switch pick := random.IntN(20); {
	case pick == 0:
		d.kind = "return"
		r.comeBack(l, set)
		return d, answer{}
	case pick < 8 || !r.holds && pick < 10:
		d.kind, d.term = "type", r.term
		return d, r.write()
	case !r.holds && pick < 15:
		d.kind = "take"
		return d, r.take(false)
	case !r.holds:
		d.kind = "request"
		return d, r.take(true)
	case pick < 14:
		d.kind = "give"
		return d, r.giveBack()
	}
	d.kind, d.to = "grant", 1+(me+random.IntN(len(racers)-2))%(len(racers)-1)
	return d, r.grant(racers[d.to])
}

// describe lists a history by when its deeds ended.
func describe(model porcupine.Model, history []porcupine.Operation) (text string) {
	for _, o := range history {
		text += fmt.Sprintf("\n%d…%d client %d %s", o.Call, o.Return, o.ClientId, model.DescribeOperation(o.Input, o.Output))
	}
	return text
}

// TestLinearizableHasTeeth: the model refuses what must not happen.
func TestLinearizableHasTeeth(t *testing.T) {
	at := func(i int, d deed, a answer) porcupine.Operation {
		return porcupine.Operation{ClientId: d.user, Input: d, Output: a, Call: int64(2 * i), Return: int64(2*i + 1)}
	}
	take := func(user int, term uint64) (deed, answer) {
		return deed{kind: "take", user: user}, answer{done: true, term: term}
	}
	a, aDone := take(1, 1)
	b, bDone := take(2, 1)
	for name, history := range map[string][]porcupine.Operation{
		"two controllers":  {at(0, a, aDone), at(0, b, bDone)},
		"typed after":      {at(0, a, aDone), at(1, deed{kind: "give", user: 1}, answer{done: true}), at(2, deed{kind: "type", user: 1, term: 1}, answer{done: true})},
		"granted unasked":  {at(0, a, aDone), at(1, deed{kind: "grant", user: 2, to: 2}, answer{done: true, term: 2})},
		"refused for free": {at(0, a, answer{})},
	} {
		if porcupine.CheckOperations(controlModel(true), history) {
			t.Errorf("%s passes", name)
		}
	}
}
