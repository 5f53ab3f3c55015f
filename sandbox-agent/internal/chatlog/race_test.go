package chatlog

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var rounds = flag.Int("rounds", 2000, "how often TestSubscribeWhileAppending subscribes")

// TestSubscribeWhileAppending subscribes at any mark while events pour and the
// log is rewritten: a follower gets each event behind its mark once, in order.
func TestSubscribeWhileAppending(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(*rounds)*time.Millisecond) // a hang
	defer cancel()
	s, err := open(Options{Dir: t.TempDir(), Bytes: 512 << 10}, newRoom(16<<10, 2000, "boot", &lazy{}))
	must(t, err)
	defer s.Close()
	l, err := s.Log(conversation)
	must(t, err)
	l.Live(true)
	must(t, l.Append(false, said("first")))
	pouring, stop := context.WithCancel(ctx)
	var pour, follow sync.WaitGroup
	pour.Go(func() {
		random := rand.New(rand.NewPCG(seed, 0))
		for pouring.Err() == nil {
			events := 1 + random.IntN(3)
			for range events {
				if err := l.Append(false, said("a word"), said("two words")); err != nil {
					t.Error(err)
					return
				}
			}
			if random.IntN(300) == 0 {
				word := []string{"word", "two"}[random.IntN(2)]
				if _, err := l.Rewrite(func(json []byte) []byte { return bytes.ReplaceAll(json, []byte(word), []byte("****")) }); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var left atomic.Int64
	left.Store(int64(*rounds))
	for i := range 4 {
		follow.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i+1)))
			for left.Add(-1) >= 0 {
				if err := oneRound(ctx, l, random); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	follow.Wait()
	stop()
	pour.Wait()
	t.Logf("%d events", s.Counts().Events)
}

// oneRound follows from a mark near the end on, over more than is there.
func oneRound(ctx context.Context, l *Log, random *rand.Rand) error {
	after := l.Position().Last
	after -= min(after-1, random.Uint64N(20))
	f, at := l.Subscribe(after)
	defer f.Close()
	if !at.Covers(after) || f.From() != after+1 {
		return errors.New("the mark is not covered")
	}
	next := after + 1
	for next <= at.Last+random.Uint64N(3) {
		e, err := f.Next(ctx)
		var reset *Reset
		if errors.As(err, &reset) {
			if reset.Last != next-1 {
				return errors.New("a reset moves the follower")
			}
			continue
		}
		if gap := (ErrGap{}); errors.As(err, &gap) && gap.First > next {
			return nil // on a busy machine it is told that the bound of the log has overtaken it
		}
		if err != nil {
			return err
		}
		if seq, ok := seqOf(e.JSON); e.Seq != next || !ok || seq != next {
			return errors.New("missing, twice or out of order")
		}
		next++
	}
	return nil
}
