// Package metrics counts what the control plane's parts do. Requests are counted
// by package web.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// What is signed: labels of Signed.
const (
	Command     = "command"
	Grant       = "grant"
	Certificate = "certificate"
)

// What somebody may have so many of: labels of Bounds.
const (
	Grants      = "grants"
	Invitations = "invitations"
	SignIns     = "sign_ins"
)

// What became of an offer of a command to one relay: labels of Offers.
const (
	OfferAnswered  = "answered"
	OfferRefused   = "refused"
	OfferElsewhere = "elsewhere"
	OfferLost      = "lost"
)

// What became of telling one relay of an answer: labels of Settled.
const (
	SettledTold    = "told"
	SettledUnknown = "unknown" // it never had the command, or has it no more
	SettledFailed  = "failed"  // it wasn't reached, or refused
	SettledDropped = "dropped" // too many waited: no relay was told
)

// Metrics are the counters of one control plane.
type Metrics struct {
	Signed   *prometheus.CounterVec // by what
	Outcomes *prometheus.CounterVec // by outcome
	Command  prometheus.Histogram   // seconds
	Offers   *prometheus.CounterVec // by delivery
	Settled  *prometheus.CounterVec // by outcome
	Lists    *prometheus.CounterVec // by [Outcome]
	Told     *prometheus.CounterVec // by [Outcome]
	Gateway  *prometheus.CounterVec // by decision
	Renewals prometheus.Counter     // refused ones
	Bounds   *prometheus.CounterVec // by what of
}

const prefix = "fairlead_controlplane_"

// New returns metrics that have counted nothing.
func New() *Metrics {
	return &Metrics{
		Signed: instrument.Counters(prefix+"signed_total", "What was signed, by its sort.", "what",
			Command, Grant, Certificate),
		Outcomes: instrument.Counters(prefix+"commands_total", "First outcomes of commands, by status.", "outcome",
			protocol.StatusOK, protocol.StatusError, protocol.StatusUnknown, store.StatusUndelivered),
		Command: prometheus.NewHistogram(instrument.LongTimes(prefix+"command_seconds",
			"Time from a person's request for a command until its outcome is stored.")),
		Offers: instrument.Counters(prefix+"relay_offers_total", "Offers of a command to one relay, by what became of it.", "outcome",
			OfferAnswered, OfferRefused, OfferElsewhere, OfferLost),
		Settled: instrument.Counters(prefix+"settled_total", "Relays told how a command for pages was answered, by what became of that.", "outcome",
			SettledTold, SettledUnknown, SettledFailed, SettledDropped),
		Lists: instrument.Counters(prefix+"revocation_lists_total", "Revocation lists sent to a relay, by whether it took it.", "outcome", ok, failed),
		Told:  instrument.Counters(prefix+"revocation_commands_total", "Sandboxes told of void grants, by whether they heard it.", "outcome", ok, failed),
		Gateway: instrument.Counters(prefix+"gateway_calls_total", "Requests of sandboxes to integrations, by what the policy said.", "decision",
			protocol.GatewayAllowed, protocol.GatewayDenied, protocol.GatewayFiltered),
		Renewals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "renewals_refused_total", Help: "Renewals of certificates that were refused because there were too many."}),
		Bounds: instrument.Counters(prefix+"bounds_total", "Requests refused, or what was given up for them, because one person or address had as many as they may, by what of.",
			"of", Grants, Invitations, SignIns),
	}
}

const ok, failed = "ok", "failed"

// Outcome returns err as a label.
func Outcome(err error) string {
	if err == nil {
		return ok
	}
	return failed
}

// Collectors returns all of m.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.Signed, m.Outcomes, m.Command, m.Offers, m.Settled, m.Lists, m.Told, m.Gateway, m.Renewals, m.Bounds,
	}
}
