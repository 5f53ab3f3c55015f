package hub

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/fairlead/fairlead/protocol"
)

// input passes on what a viewer typed, under the term of this moment, or tells
// the viewer why not.
func (h *Hub) input(e typed) {
	reason, ok := protocol.RefusalReason(""), false
	switch {
	case h.viewers[e.v.id] != e.v:
		h.release(e.v, e.cost)
		return
	case !e.v.greeted: // whether it has control is being decided
		e.v.early = append(e.v.early, e)
		return
	case h.ended:
		reason = protocol.RefusedEnded
	case h.link == nil:
		reason = protocol.RefusedWaiting
	default:
		reason, ok = h.state.MayType(e.v.id)
	}
	if !ok {
		h.release(e.v, e.cost)
		h.refuse(e.v, reason)
		return
	}
	e.v.nextSeq++
	input := protocol.Input{Term: h.state.Term(), Seq: e.v.nextSeq, Client: e.v.client, Bytes: e.input}
	h.unacked = append(h.unacked, unackedInput{e.v, input, e.cost})
	h.metrics.InputBytes.Add(float64(len(e.input)))
	h.send(input)
}

// reserve takes room for input, waiting until there is some, ctx ends or the
// hub is over.
func (h *Hub) reserve(ctx context.Context, room *semaphore.Weighted, cost int64) error {
	if room.TryAcquire(cost) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(h.over, cancel)
	defer stop()
	return room.Acquire(ctx, cost)
}

func (h *Hub) release(v *Viewer, cost int64) {
	v.credit.Release(cost)
	h.queue.Release(cost)
}

func (h *Hub) refuse(v *Viewer, reason protocol.RefusalReason) {
	h.metrics.InputRefused.WithLabelValues(string(reason)).Inc()
	v.tell(protocol.InputDropped{Reason: reason})
}

// settle removes the unacknowledged inputs that match and frees their room.
func (h *Hub) settle(match func(protocol.Input) bool) {
	kept := h.unacked[:0]
	for _, u := range h.unacked {
		if match(u.input) {
			h.release(u.v, u.cost)
		} else {
			kept = append(kept, u)
		}
	}
	clear(h.unacked[len(kept):])
	h.unacked = kept
}

// acked: the agent wrote all input of a client up to a sequence number.
func (h *Hub) acked(m protocol.InputAck) {
	h.settle(func(in protocol.Input) bool { return in.Client == m.Client && in.Seq <= m.Seq })
}

// inputRefused: the agent did not write one input.
func (h *Hub) inputRefused(m protocol.InputRefused) {
	for _, u := range h.unacked {
		if u.input.Client == m.Client && u.input.Seq == m.Seq {
			h.refuse(u.v, m.Reason)
		}
	}
	h.settle(func(in protocol.Input) bool { return in.Client == m.Client && in.Seq == m.Seq })
}

// dropInput refuses everything that waits for the agent.
func (h *Hub) dropInput(reason protocol.RefusalReason) {
	for _, u := range h.unacked {
		h.refuse(u.v, reason)
	}
	h.settle(func(protocol.Input) bool { return true })
}

// repeatInput sends unacknowledged input again on a new link. The agent knows
// what it has written, so nothing is typed twice; what was typed under another
// term is refused.
func (h *Hub) repeatInput() {
	term := h.state.Term()
	for _, u := range h.unacked {
		if u.input.Term != term {
			h.refuse(u.v, protocol.RefusedStaleTerm)
		} else {
			h.send(u.input)
		}
	}
	h.settle(func(in protocol.Input) bool { return in.Term != term })
}
