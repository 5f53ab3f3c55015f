package chatapi

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestResendsAreBounded: who sends many messages has the own ones forgotten, and
// nobody else's; also once there are too many of all.
func TestResendsAreBounded(t *testing.T) {
	var n resends
	n.refused("usr_alice", "hers", 0)
	for i := range 3 * maxResendsOfPerson {
		n.sends("usr_bob", fmt.Sprint(i))
	}
	for i := range maxResends/maxResendsOfPerson + 5 {
		for j := range maxResendsOfPerson {
			n.sends(protocol.UserID(fmt.Sprint("usr_", i)), fmt.Sprint(j))
		}
	}
	all := 0
	for person, own := range n.of {
		if all += len(own); len(own) > maxResendsOfPerson {
			t.Errorf("%d of %s", len(own), person)
		}
	}
	if all != n.all || all > maxResends {
		t.Errorf("%d in all, counted as %d", all, n.all)
	}
	if try, command := n.next("usr_alice", "hers"); try != 1 || command != "hers-1" || !n.knows("usr_alice", "hers") {
		t.Errorf("hers is forgotten: %d, %s", try, command)
	}
	if n.knows("usr_bob", "hers") {
		t.Error("hers counts as bob's")
	}
}
