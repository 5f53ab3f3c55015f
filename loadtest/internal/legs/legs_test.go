package legs

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/program/hops"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// Each leg ends at the first passing of its place after the one before, whatever
// else passes there; a key that isn't seen somewhere has no legs.
func TestCut(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	p := Passings{}
	note := func(program string, place hops.Place, us int) {
		p[program] = append(p[program], hops.Passing{Place: place, At: began.Add(time.Duration(us) * time.Microsecond)})
	}
	for i, s := range route {
		note(s.program, s.place, 10*(i+1))
		note(s.program, s.place, 10*(i+1)+1) // an acknowledgement behind it
	}
	key := Key{began, began.Add(140 * time.Microsecond)}
	durations, ok := p.cut(key)
	if !ok || len(durations) != len(route)+1 {
		t.Fatalf("%v, %t", durations, ok)
	}
	for i, d := range durations[:len(route)] {
		if d != 10*time.Microsecond {
			t.Errorf("leg %d took %v", i, d)
		}
	}
	if d := durations[len(route)]; d != 20*time.Microsecond {
		t.Errorf("the last leg took %v", d)
	}
	rec := measure.NewRecorder()
	rec.Begin(began)
	early := Key{began, began.Add(100 * time.Microsecond)}           // its echo came before the relay read it
	late := Key{began.Add(time.Second), key.Echoed.Add(time.Minute)} // nothing was noted
	if whole := p.Record([]Key{key, early, late}, rec); whole != 1 {
		t.Errorf("%d keys were seen everywhere", whole)
	}
	if n := len(Metrics()); n != len(durations) {
		t.Errorf("%d metrics", n)
	}
}
