package scenario

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

const (
	// echoWait is how long a keystroke's echo is waited for; it is lost then.
	echoWait = 10 * time.Second
	// maxUnechoed bounds the keystrokes whose echo is still to come.
	maxUnechoed = 100_000
)

// A typist types one key after the other, each when it is due, into a terminal
// that echoes, and times each until it is back.
type typist struct {
	// Static after construction.
	viewer  *client.Viewer
	rec     *measure.Recorder
	echo    *measure.Latency
	lag     *measure.Latency
	lost    *measure.Counter
	garbled *measure.Counter

	// Guarded by the viewer's lock.
	listening bool
	typed     int         // keys so far
	due       []time.Time // of those whose echo is still to come
	first     int         // which key due[0] is
}

// newTypist returns a typist who records to the latency of that name. Viewer is
// set before it types; it must be heard by the viewer.
func newTypist(rec *measure.Recorder, name string) *typist {
	return &typist{
		rec: rec, echo: rec.Latency(name), lag: rec.Latency(measure.LagName),
		lost: rec.Counter("lost_keys"), garbled: rec.Counter("garbled_keys"),
	}
}

// keyOf is the k-th key: neighbours differ, so that a lost one shows.
func keyOf(k int) byte { return 'a' + byte(k%26) }

// Output implements [client.Handler].
func (t *typist) Output(p []byte, at time.Time) {
	if !t.listening {
		return
	}
	for _, b := range p {
		if len(t.due) == 0 || b != keyOf(t.first) {
			t.garbled.Add(1)
			continue
		}
		t.echo.Record(t.due[0], at)
		t.due, t.first = t.due[1:], t.first+1
	}
}

// Jump implements [client.Handler]. What was echoed in between is lost.
func (t *typist) Jump(j client.Jump) {
	if t.listening && !j.Continues() {
		t.giveUp()
	}
}

// Lost implements [client.Handler].
func (t *typist) Lost(time.Time, error) {}

// giveUp counts what isn't back as lost. The viewer is locked.
func (t *typist) giveUp() {
	t.lost.Add(int64(len(t.due)))
	t.first += len(t.due)
	t.due = nil
}

// listen begins to compare what comes with what was typed.
func (t *typist) listen() { t.viewer.Do(func() { t.listening = true }) }

// typeFor types rate keys a second for so long, and waits for the echoes.
func (t *typist) typeFor(ctx context.Context, rate float64, d time.Duration) error {
	wait, end := preciseWait()
	defer end()
	start := time.Now()
	for n := range max(1, int(rate*d.Seconds())) {
		due := start.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		if err := wait(ctx, due); err != nil {
			return err
		}
		var key byte
		full := false
		t.viewer.Do(func() {
			key, full = keyOf(t.typed), len(t.due) >= maxUnechoed
			t.typed++
			t.due = append(t.due, due)
		})
		if full {
			return fmt.Errorf("%d keystrokes have no echo yet", maxUnechoed)
		}
		t.lag.Record(due, time.Now())
		if err := t.viewer.Type(ctx, string(key), nil); err != nil {
			return err
		}
	}
	return t.await(ctx)
}

// await waits until every echo is back or echoWait is over.
func (t *typist) await(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, echoWait)
	defer cancel()
	err := t.viewer.Await(waiting, "echoes", func() bool { return len(t.due) == 0 })
	if err == nil {
		return nil
	}
	t.viewer.Do(t.giveUp)
	return ctx.Err()
}

// preciseWait returns a function that waits until a time, to a few microseconds,
// for one goroutine, which calls end. The runtime's own timers are up to a
// millisecond late, several times what a keystroke takes.
func preciseWait() (wait func(context.Context, time.Time) error, end func()) {
	runtime.LockOSThread()
	// Sleeps of this thread may end 1 ns late, instead of 50 µs.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return sleepTo, func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // the default
		runtime.UnlockOSThread()
	}
}

// longestSleep bounds how long the end of a context goes unnoticed.
const longestSleep = 50 * time.Millisecond

func sleepTo(ctx context.Context, at time.Time) error {
	for ctx.Err() == nil {
		left := time.Until(at)
		if left <= 0 {
			return nil
		}
		ts := unix.NsecToTimespec(int64(min(left, longestSleep)))
		if err := unix.Nanosleep(&ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return ctx.Err()
}
