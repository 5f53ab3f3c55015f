// Package typist types keys, each when it is due, into a terminal that echoes,
// and times each echo.
package typist

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/openloop"
)

const (
	// echoWait is how long the echo of a key may take. Then it is lost.
	echoWait = 10 * time.Second
	// maxUnechoed bounds the keys whose echo has not come.
	maxUnechoed = 100_000
)

// A Viewer is of the terminal into which is typed: a [client.Viewer], or a peer's.
type Viewer interface {
	Type(ctx context.Context, keys string, written func(at time.Time)) error
	// Do calls f while no output is handled.
	Do(f func())
	// Await waits until done, which is called like Do's function, returns true.
	Await(ctx context.Context, what string, done func() bool) error
	Close()
}

// A Typist is one at one terminal.
type Typist struct {
	// Viewer is the terminal's, which the typist hears. It is set before Listen.
	Viewer Viewer
	// Witness, if set before Listen, hears of each key when its echo has come.
	Witness Witness

	// Static after construction.
	rec     *measure.Recorder
	lag     *measure.Latency
	lost    *measure.Counter
	garbled *measure.Counter

	// Owned by the viewer: used in the handler's methods, and by what Viewer.Do
	// runs.
	echo      *measure.Latency
	listening bool
	typed     int   // keys so far
	due       []key // those whose echo is still to come
	first     int   // which key due[0] is
}

// A Witness hears of keys.
type Witness interface {
	Echoed(sent, echoed time.Time)
}

// A key is under way.
type key struct{ due, sent time.Time }

// New returns a typist who records to the latency of that name.
func New(rec *measure.Recorder, name string) *Typist {
	return &Typist{
		rec: rec, echo: rec.Latency(name), lag: rec.Latency(measure.LagName),
		lost: rec.Counter("lost_keys"), garbled: rec.Counter("garbled_keys"),
	}
}

// keyOf returns the k-th key. Neighbours differ, so that a lost key is noticed.
func keyOf(k int) byte { return 'a' + byte(k%26) }

// As has echoes recorded to the latency of that name from now on.
func (t *Typist) As(name string) { t.Viewer.Do(func() { t.echo = t.rec.Latency(name) }) }

// Output implements [client.Handler].
func (t *Typist) Output(p []byte, at time.Time) {
	if !t.listening {
		return
	}
	for _, b := range p {
		if len(t.due) == 0 || b != keyOf(t.first) {
			t.garbled.Add(1)
			continue
		}
		t.echo.Record(t.due[0].due, at)
		if t.Witness != nil {
			t.Witness.Echoed(t.due[0].sent, at)
		}
		t.due, t.first = t.due[1:], t.first+1
	}
}

// Jump implements [client.Handler]. What was echoed in between is lost.
func (t *Typist) Jump(j client.Jump) {
	if t.listening && !j.Continues() {
		t.giveUp()
	}
}

// Lost implements [client.Handler].
func (t *Typist) Lost(time.Time, error) {}

// giveUp counts what isn't back as lost. Viewer.Do or a method of the handler
// runs it.
func (t *Typist) giveUp() {
	t.lost.Add(int64(len(t.due)))
	t.first += len(t.due)
	t.due = nil
}

// Listen begins to compare output with the keys.
func (t *Typist) Listen() { t.Viewer.Do(func() { t.listening = true }) }

// Type types rate keys a second for so long, and waits for the echoes.
func (t *Typist) Type(ctx context.Context, rate float64, d time.Duration) error {
	_, err := openloop.Each(ctx, rate, d, func(_ int, due time.Time) error {
		var typed byte
		full, now := false, time.Now()
		t.Viewer.Do(func() {
			typed, full = keyOf(t.typed), len(t.due) >= maxUnechoed
			t.typed++
			t.due = append(t.due, key{due, now})
		})
		if full {
			return fmt.Errorf("%d keystrokes have no echo yet", maxUnechoed)
		}
		t.lag.Record(due, time.Now())
		return t.Viewer.Type(ctx, string(typed), nil)
	})
	if err != nil {
		return err
	}
	return t.await(ctx)
}

// await waits until every echo is back or echoWait is over.
func (t *Typist) await(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, echoWait)
	defer cancel()
	err := t.Viewer.Await(waiting, "echoes", func() bool { return len(t.due) == 0 })
	if err == nil {
		return nil
	}
	t.Viewer.Do(t.giveUp)
	return ctx.Err()
}
