package link

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatch: all tunnels are told, those that come later too, and somebody who
// has just left may be back.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watch
		var one, two []bool
		defer w.join(func(watched bool) { one = append(one, watched) })()
		w.begin()
		w.begin()
		leave := w.join(func(watched bool) { two = append(two, watched) })
		w.end()
		time.Sleep(2 * watchLinger)
		synctest.Wait()
		w.end()
		time.Sleep(watchLinger - 1)
		w.begin()
		time.Sleep(2 * watchLinger)
		synctest.Wait()
		if want := []bool{true}; !slices.Equal(one, want) || !slices.Equal(two, want) {
			t.Errorf("while somebody watches: %v and %v", one, two)
		}
		leave()
		w.end()
		time.Sleep(watchLinger + 1)
		synctest.Wait()
		if want := []bool{true, false}; !slices.Equal(one, want) || len(two) != 1 {
			t.Errorf("later: %v and %v", one, two)
		}
		w.begin()
		if want := []bool{true, false, true}; !slices.Equal(one, want) {
			t.Errorf("again: %v", one)
		}
	})
}
