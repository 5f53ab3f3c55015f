package device

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestLimits: a sandbox asks for no more than it may.
func TestLimits(t *testing.T) {
	l := newLimits()
	now := time.Unix(1, 0)
	var leaves []func()
	for range requestsAtOnce {
		leave, err := l.enter("sb_1", now)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := l.enter("sb_1", now); protocol.KindOf(err) != protocol.KindTooMany || err == nil {
		t.Errorf("%v", err)
	}
	if leave, err := l.enter("sb_2", now); err != nil {
		t.Error(err)
	} else {
		leave()
	}
	for _, leave := range leaves {
		leave()
	}
	n := 0
	for ; n < 2*requestBurst; n++ {
		leave, err := l.enter("sb_1", now)
		if err != nil {
			break
		}
		leave()
	}
	if n != requestBurst-requestsAtOnce-1 {
		t.Errorf("%d more at once", n)
	}
	if leave, err := l.enter("sb_1", now.Add(time.Second)); err != nil {
		t.Error(err)
	} else {
		leave()
	}
}
