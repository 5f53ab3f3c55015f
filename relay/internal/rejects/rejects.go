// Package rejects counts what the relay refuses and logs it at a limited rate.
package rejects

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/seldom"
	"github.com/fairlead/fairlead/protocol"
)

// What can be refused; the label "what" of the counter.
const (
	Command     = "command"
	Callback    = "callback"
	Revocations = "revocations"
	Stream      = "stream"
	Request     = "request" // with a grant
	Origin      = "origin"  // a foreign Host or web origin
	Preview     = "preview" // of what a sandbox shows
	Body        = "body"    // a body that didn't come
	Frame       = "frame"   // a WebSocket frame that ended its socket
	Framing     = "framing" // of a request whose length programs could read differently
)

var all = []string{Command, Callback, Revocations, Stream, Request, Origin, Preview, Body, Frame, Framing}

// Rejects counts refusals. It is safe for concurrent use; nil counts nothing.
type Rejects struct {
	// Now is the clock for the log interval. Tests set another one before the
	// first refusal.
	Now func() time.Time

	// Static after construction.
	log   *slog.Logger
	total *prometheus.CounterVec

	logged seldom.Limit[reason]
}

// A reason is logged once per interval. There are as many as there are kinds of
// errors, times the things that can be refused.
type reason struct {
	what string
	kind protocol.Kind
}

// New returns Rejects registered with reg.
func New(reg prometheus.Registerer, log *slog.Logger) *Rejects {
	r := &Rejects{
		Now: time.Now, log: log,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_rejects_total",
			Help: "What was refused, by kind of error and its name.",
		}, []string{"what", "kind", "name"}),
	}
	for _, what := range all {
		for _, row := range protocol.Kinds {
			r.total.WithLabelValues(what, row.Label, row.Name)
		}
	}
	reg.MustRegister(r.total)
	return r
}

// Count counts the refusal of what for err. It logs the error's message, which
// must not quote the refused input; those of package jws never do.
func (r *Rejects) Count(what string, err error) {
	if r == nil || err == nil {
		return
	}
	e := protocol.AsError(err)
	r.total.WithLabelValues(what, e.Kind.String(), e.Kind.Name()).Inc()
	if n := r.logged.Happened(reason{what, e.Kind}, r.Now()); n > 0 {
		r.log.Warn("refused", "what", what, "kind", e.Kind, "name", e.Kind.Name(), "reason", e.Error(), "unlogged", n-1)
	}
}
