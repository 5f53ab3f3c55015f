package dispatch

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
)

// TestCommandsAreCounted: each once, by its outcome, whoever asks for it again.
func TestCommandsAreCounted(t *testing.T) {
	w := newWorld(t, succeed)
	m := NewMetrics()
	w.dispatcher.opts.Metrics = m
	env := w.authority.Command(nil)
	for range 3 {
		if _, err := w.submit(env); err != nil {
			t.Fatal(err)
		}
	}
	w.dispatcher.Close() // waits until it is counted
	if got := testutil.ToFloat64(m.ended.WithLabelValues(toSandbox, outcomeOK)); got != 1 {
		t.Errorf("%v succeeded", got)
	}
	if got := testutil.ToFloat64(m.repeated); got != 2 {
		t.Errorf("%v came again", got)
	}
	if running, waiting := testutil.ToFloat64(m.running), testutil.ToFloat64(m.waiting); running != 0 || waiting != 0 {
		t.Errorf("%v are under way and %v wait", running, waiting)
	}
}

// TestLostCommandsAreCounted: also that they were sent again.
func TestLostCommandsAreCounted(t *testing.T) {
	w := newWorld(t, dies)
	m := NewMetrics()
	w.dispatcher.opts.Metrics = m
	record, err := w.dispatcher.Submit(t.Context(), w.authority.Command(nil))
	if err != nil {
		t.Fatal(err)
	}
	<-w.agent.Done()
	w.connect(func(*world, call) (protocol.Result, error) { return protocol.Result{}, errors.New("no answer") })
	if _, _, err := record.Wait(t.Context()); err == nil {
		t.Error("an outcome that nobody knows")
	}
	w.dispatcher.Close()
	if lost, again := testutil.ToFloat64(m.ended.WithLabelValues(toSandbox, outcomeLost)), testutil.ToFloat64(m.resent); lost != 1 || again != 1 {
		t.Errorf("%v lost, %v sent again", lost, again)
	}
}
