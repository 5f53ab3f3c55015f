// Package legs cuts the way of a key and its echo into legs, by the passings that
// the programs on it have noted.
package legs

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/program/hops"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// A stop is a place on the way. The leg that ends there has a name and a text.
type stop struct {
	program string
	place   hops.Place
	leg     string
	help    string
}

const (
	relay = "relay"
	agent = "sandbox-agent"
)

// route is the way of a key and its echo through our programs.
var route = []stop{
	{relay, hops.SocketIn, "leg_1_to_relay", "the key was sent, until the relay has read its frame"},
	{relay, hops.StreamOut, "leg_2_relay_queue", "… until it is handed to the tunnel"},
	{relay, hops.PacketOut, "leg_3_relay_tunnel", "… until a packet is handed to the kernel"},
	{agent, hops.PacketIn, "leg_4_to_agent", "… until the agent has read it"},
	{agent, hops.StreamIn, "leg_5_agent_tunnel", "… until the frame is read from its stream"},
	{agent, hops.TerminalIn, "leg_6_agent_input", "… until the key is written to the terminal"},
	{agent, hops.TerminalOut, "leg_7_program", "… until the program's echo was read from it"},
	{agent, hops.StreamOut, "leg_8_agent_output", "… until it is handed to the tunnel, masked, drawn and logged"},
	{agent, hops.PacketOut, "leg_9_agent_tunnel", "… until a packet is handed to the kernel"},
	{relay, hops.PacketIn, "leg_10_to_relay", "… until the relay has read it"},
	{relay, hops.StreamIn, "leg_11_relay_tunnel", "… until the frame is read from its stream"},
	{relay, hops.SocketOut, "leg_12_relay_output", "… until it is handed to the kernel for the viewer"},
}

// last is the leg after the route.
const last = "leg_13_to_viewer"

// Metrics are the legs, in their order.
func Metrics() []measure.Metric {
	var all []measure.Metric
	for _, s := range route {
		all = append(all, measure.Metric{Name: s.leg, Kind: measure.KindLatency, LowerIsBetter: true, Help: s.help})
	}
	return append(all, measure.Metric{Name: last, Kind: measure.KindLatency, LowerIsBetter: true, Help: "… until the echo is at the viewer"})
}

// A Key was sent and echoed before the next one was sent.
type Key struct{ Sent, Echoed time.Time }

// A Passings has what each program has noted.
type Passings map[string][]hops.Passing

// Read reads what the programs on the route have noted in a directory. It fails if
// one of them has noted nothing.
func Read(dir string) (Passings, error) {
	all := Passings{}
	for _, program := range []string{relay, agent} {
		noted, err := hops.Read(dir, program)
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(noted, func(a, b hops.Passing) int { return a.At.Compare(b.At) })
		all[program] = noted
	}
	return all, nil
}

// Record records the legs of each key, and returns how many keys have been seen at
// all places.
func (p Passings) Record(keys []Key, rec *measure.Recorder) (whole int) {
	for _, key := range keys {
		durations, ok := p.cut(key)
		if !ok {
			continue
		}
		whole++
		for i, d := range durations {
			name := last
			if i < len(route) {
				name = route[i].leg
			}
			rec.Latency(name).RecordDuration(key.Sent, d)
		}
	}
	return whole
}

// cut returns how long each leg of a key took. Acknowledgements pass the same places
// as keys do: the first passing after that of the place before is the key's. !ok: a
// place hasn't seen it.
func (p Passings) cut(key Key) (durations []time.Duration, ok bool) {
	at := key.Sent
	for _, s := range route {
		noted := p[s.program]
		i, _ := slices.BinarySearchFunc(noted, at, func(n hops.Passing, at time.Time) int { return n.At.Compare(at) })
		for i < len(noted) && noted[i].Place != s.place {
			i++
		}
		if i == len(noted) || noted[i].At.After(key.Echoed) {
			return nil, false
		}
		durations = append(durations, noted[i].At.Sub(at))
		at = noted[i].At
	}
	return append(durations, key.Echoed.Sub(at)), true
}
