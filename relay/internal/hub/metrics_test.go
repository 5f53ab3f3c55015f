package hub

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// observed returns how often a histogram was.
func observed(t *testing.T, h prometheus.Collector) (n uint64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(h)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range families[0].GetMetric() {
		n += series.GetHistogram().GetSampleCount()
	}
	return n
}

// TestTimes: joining, a key, its echo and output are each observed once, however
// many watch, and so is the time without a stream.
func TestTimes(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(alice, nil), w.join(carol, nil)
	x.greeted()
	y.greeted()
	a := w.attached()
	m := w.set.metrics
	if n := observed(t, m.Join); n != 2 {
		t.Errorf("%d joins", n)
	}
	end := a.data(0, "$ ")
	x.reads("$ ")
	y.reads("$ ")
	if n := observed(t, m.Typing.Echo); n != 0 {
		t.Errorf("%d echoes of no key", n)
	}
	x.types("l")
	in := hears[protocol.Input](a)
	a.say(protocol.InputAck{Client: in.Client, Seq: in.Seq})
	end = a.data(end, "l")
	x.reads("l")
	y.reads("l")
	end = a.data(end, "s")
	x.reads("s")
	if n := observed(t, m.Typing.Echo); n != 1 {
		t.Errorf("%d echoes of a key", n)
	}
	if n := observed(t, m.Typing.Acks); n != 1 {
		t.Errorf("%d inputs", n)
	}
	if n := testutil.ToFloat64(m.Feeds.TerminalBytes); n != float64(end) {
		t.Errorf("%v bytes of %d", n, end)
	}

	w.opens(protocol.TerminalOpened{Epoch: 7, Offset: end, Head: end, Cols: 80, Rows: 24, Lease: held(3, 2)}, nil)
	a.stream.Close()
	x.gets(protocol.ServerWaiting)
	a = w.attached()
	x.gets(protocol.ServerControlState)
	a.data(end, "again")
	x.reads("again")
	if n := observed(t, m.Resume); n != 1 {
		t.Errorf("back %d times", n)
	}
}

// TestDeliveryIsObservedOnce: for a chunk, and not for each of its viewers, nor
// where there is none.
func TestDeliveryIsObservedOnce(t *testing.T) {
	h := still()
	deliver := func() {
		t.Helper()
		if err := h.feed.Append(protocol.Data{Offset: h.feed.Head().Offset, Bytes: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		h.fanout().deliver()
	}
	deliver()
	if n := observed(t, h.metrics.Feeds.Delivery); n != 0 {
		t.Errorf("%d deliveries to nobody", n)
	}
	for i := range 5 {
		seat(h, turn.SocketID(i), "usr_1", time.Now().Add(time.Hour))
	}
	deliver()
	deliver()
	if n := observed(t, h.metrics.Feeds.Delivery); n != 2 {
		t.Errorf("%d deliveries of two chunks", n)
	}
}

// BenchmarkObserving is what a chunk costs beside its writes, once for all
// viewers.
func BenchmarkObserving(b *testing.B) {
	m := NewMetrics(prometheus.NewRegistry())
	for b.Loop() {
		began := time.Now()
		m.Feeds.TerminalBytes.Add(1000)
		m.Feeds.Delivery.Observe(time.Since(began).Seconds())
	}
}

// TestNothingIsUnhandled: the hub acts on every message that the stream's reader
// and gateways pass on, and counts any other.
func TestNothingIsUnhandled(t *testing.T) {
	h := still()
	v := seat(h, 1, "usr_1", time.Now().Add(time.Hour))
	for _, m := range []protocol.Message{
		protocol.Leased{}, protocol.Granted{}, protocol.Recording{}, protocol.Shared{}, protocol.Held{},
		protocol.AgentReport{}, protocol.AgentTurn{}, protocol.ToolsChanged{}, protocol.TerminalsChanged{}, protocol.Address{}, protocol.Reset{},
	} {
		h.answer(m)
	}
	for _, kind := range []string{
		protocol.ClientRequestControl, protocol.ClientTakeControl, protocol.ClientTakeBack, protocol.ClientCancelRequest,
		protocol.ClientGrantControl, protocol.ClientRevokeControl, protocol.ClientResize, protocol.ClientLead,
	} {
		h.obey(v, protocol.ClientMessage{Type: kind})
	}
	for _, what := range []string{unhandledAgent, unhandledClient, unhandledTurn, unhandledRoster} {
		if n := testutil.ToFloat64(h.metrics.Unhandled.WithLabelValues(what)); n != 0 {
			t.Errorf("%v of %s", n, what)
		}
	}
	h.answer(protocol.Data{})
	h.obey(v, protocol.ClientMessage{Type: "nonsense"})
	for _, what := range []string{unhandledAgent, unhandledClient} {
		if n := testutil.ToFloat64(h.metrics.Unhandled.WithLabelValues(what)); n != 1 {
			t.Errorf("%v of %s are counted", n, what)
		}
	}
}
