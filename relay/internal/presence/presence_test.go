package presence

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// TestEncoded: whoever comes, goes and gets other rights, what is encoded
// is what Message says, in the protocol's form.
func TestEncoded(t *testing.T) {
	names := []string{"", "Alice", `"<Bob>" & \`, "\u2028\xff", "Zoë"}
	rapid.Check(t, func(t *rapid.T) {
		var p People
		type seat struct {
			user    protocol.UserID
			name    string
			control bool
		}
		var seats []seat
		check := func() {
			if got, want := string(p.Encoded()), string(protocol.EncodeServerMessage(p.Message())); got != want {
				t.Fatalf("%s\nwant %s", got, want)
			}
		}
		check()
		for range rapid.IntRange(1, 150).Draw(t, "changes") {
			switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); {
			case kind < 2 || len(seats) == 0:
				n := rapid.IntRange(0, 2*protocol.MaxPresenceViewers).Draw(t, "user")
				s := seat{protocol.UserID(fmt.Sprint("usr_", n)), names[n%len(names)], rapid.Bool().Draw(t, "control")}
				p.Add(s.user, s.name, s.control)
				seats = append(seats, s)
			case kind == 2:
				i := rapid.IntRange(0, len(seats)-1).Draw(t, "seat")
				p.Remove(seats[i].user, seats[i].control)
				seats = append(seats[:i], seats[i+1:]...)
			default:
				s := &seats[rapid.IntRange(0, len(seats)-1).Draw(t, "seat")]
				p.Change(s.user, s.name, s.control, !s.control)
				s.control = !s.control
			}
			check()
		}
	})
}

// TestInterval: a change is told within a second, but where so many watch that
// this would be more than a thousand messages a second.
func TestInterval(t *testing.T) {
	var p People
	now := time.Unix(1_000_000, 0)
	for sockets := 1; sockets <= 5_000; sockets++ {
		p.Add("usr_1", "", false)
		p.Told(now)
		if _, needed := p.DueIn(now); needed {
			t.Fatal("told twice")
		}
		p.Change("usr_1", "", false, true)
		p.Change("usr_1", "", true, false)
		wait, needed := p.DueIn(now)
		if want := max(Interval, time.Duration(sockets)*time.Millisecond); wait != want || !needed {
			t.Fatalf("%d sockets: %v, %v", sockets, wait, needed)
		}
	}
}

// TestAGreetingEncodesOne: one who comes has one person encoded, not fifty.
func TestAGreetingEncodesOne(t *testing.T) {
	var p People
	for i := range 10 * protocol.MaxPresenceViewers {
		p.Add(protocol.UserID(fmt.Sprint("usr_", i)), "somebody", false)
	}
	p.Encoded()
	got := testing.AllocsPerRun(100, func() {
		p.Add("usr_0", "somebody", false)
		p.Encoded()
	})
	if got > 4 {
		t.Errorf("%v allocations", got)
	}
}
