package mcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// after returns what the store has after index, or an error.
func after(t *testing.T, s *eventStore, session, stream string, index int) (string, error) {
	var all []string
	for data, err := range s.After(t.Context(), session, stream, index) {
		if err != nil {
			return "", err
		}
		all = append(all, string(data))
	}
	return strings.Join(all, " "), nil
}

func TestEventsAreKept(t *testing.T) {
	s := newEventStore()
	ctx := t.Context()
	for i := range 4 {
		s.Append(ctx, "a", "1", fmt.Appendf(nil, "one%d", i))
		s.Append(ctx, "a", "", fmt.Appendf(nil, "list%d", i))
	}
	for _, tt := range []struct {
		stream string
		index  int
		want   string
	}{
		{"1", -1, "one0 one1 one2 one3"}, {"1", 1, "one2 one3"}, {"1", 3, ""}, {"1", 99, ""},
		{"", -1, "list3"}, {"", 0, "list3"}, {"", 2, "list3"}, {"", 3, ""},
	} {
		if got, err := after(t, s, "a", tt.stream, tt.index); err != nil || got != tt.want {
			t.Errorf("after %d of %q: %q, %v", tt.index, tt.stream, got, err)
		}
	}
	for _, gone := range [][2]string{{"a", "2"}, {"b", "1"}} {
		if _, err := after(t, s, gone[0], gone[1], -1); !errors.Is(err, errGone) {
			t.Errorf("%q: %v", gone, err)
		}
	}
	s.sweep(time.Now().Add(heldFor))
	if _, err := after(t, s, "a", "1", 0); !errors.Is(err, errGone) {
		t.Errorf("an old answer: %v", err)
	}
	if got, err := after(t, s, "a", "", 0); err != nil || got != "list3" {
		t.Errorf("the list after long: %q, %v", got, err)
	}
	s.SessionClosed(ctx, "a")
	if s.bytes != 0 || len(s.sessions) != 0 {
		t.Errorf("%d bytes of %d sessions are left", s.bytes, len(s.sessions))
	}
}

// However much is sent, bounds hold, counts are right, and what is kept of a
// stream is its end.
func TestEventsAreBounded(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	s := newEventStore()
	next := make(map[[2]string]int)
	for range 1000 {
		key := [2]string{fmt.Sprint(r.IntN(20)), fmt.Sprint(r.IntN(80))}
		if r.IntN(10) == 0 {
			key[1] = ""
		}
		s.Append(t.Context(), key[0], key[1], make([]byte, r.IntN(200<<10)))
		if _, err := after(t, s, key[0], key[1], next[key]-1); err != nil && next[key] > 0 && s.kept(key) {
			t.Fatalf("the last event of %q is gone: %v", key, err)
		}
		next[key]++
		if r.IntN(500) == 0 {
			s.SessionClosed(t.Context(), key[0])
		}
		total := 0
		for _, in := range s.sessions {
			sum := 0
			for _, h := range in.streams {
				for _, data := range h.events.All() {
					sum += len(data)
				}
			}
			if sum != in.bytes || len(in.streams) > maxHeldStreams+1 || sum > maxHeldPerSession {
				t.Fatalf("a session keeps %d bytes, counted as %d, of %d streams", sum, in.bytes, len(in.streams))
			}
			total += sum
		}
		if total != s.bytes || total > maxHeldBytes {
			t.Fatalf("%d bytes are kept, counted as %d", total, s.bytes)
		}
	}
}

// kept reports whether a stream has kept all of its events.
func (s *eventStore) kept(key [2]string) bool {
	for _, h := range s.sessions[key[0]].streams {
		if h.id == key[1] {
			return h.events.First() == 0
		}
	}
	return false
}

// A stream in which nothing happens is heard of, until it is over.
func TestBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quiet, endless := httptest.NewRecorder(), httptest.NewRecorder()
		call, events := newSink(quiet, false), newSink(endless, true)
		call.Write([]byte("data: 1\n\n"))
		events.Write([]byte(": ok\n\n"))
		time.Sleep(beatEvery + time.Second)
		first, second := call.beat(), call.beat()
		time.Sleep(2*beatEvery + time.Second)
		first()
		time.Sleep(beatEvery)
		second()
		time.Sleep(10 * beatEvery)
		synctest.Wait()
		if got := strings.Count(quiet.Body.String(), ": working"); got != 3 {
			t.Errorf("%d comments while tools work", got)
		}
		if got := strings.Count(endless.Body.String(), ": working"); got != 14 {
			t.Errorf("%d comments in an endless stream", got)
		}
		call.finish()
		events.finish()
		before := endless.Body.Len()
		time.Sleep(10 * beatEvery)
		synctest.Wait()
		if _, err := events.Write([]byte("late")); err == nil || endless.Body.Len() != before {
			t.Error("something was written to a request that is over")
		}
	})
}
