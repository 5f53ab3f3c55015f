package tunnel

import (
	"errors"
	"testing"
	"time"
)

// TestWhenTCPIsOfNoUse: one that is lost soon, or that failed, is the last one.
func TestWhenTCPIsOfNoUse(t *testing.T) {
	begin := time.Now()
	for name, c := range map[string]struct {
		err   error
		lived time.Duration
		again bool
	}{
		"it lived":         {nil, besideLife, true},
		"it was lost soon": {nil, besideLife - time.Second, false},
		"it failed":        {errors.New("refused"), time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			var b beside
			if !b.try(begin) {
				t.Fatal("nothing is known")
			}
			b.note(c.err, begin)
			if got := b.try(begin.Add(c.lived)); got != c.again {
				t.Errorf("tried again: %v", got)
			}
		})
	}
}
