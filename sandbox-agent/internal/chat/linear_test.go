package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fairlead/fairlead/protocol"
)

// A call is an operation of the model: somebody sends the message of a run, aborts,
// or sees that a run is complete. What came of it is a code.
type call struct {
	run   protocol.CommandID
	abort bool
	ends  bool
}

// runModel is a conversation: at most one run, which ends with its complete.
var runModel = porcupine.Model{
	Init: func() any { return protocol.CommandID("") },
	Step: func(state, input, output any) (bool, any) {
		running, in, code := state.(protocol.CommandID), input.(call), output.(string)
		switch {
		case in.ends:
			return running == in.run, protocol.CommandID("")
		case in.abort && running == "":
			return code == "NO_ACTIVE_RUN", running
		case in.abort:
			return code == "", running
		case running == "":
			return code == "", in.run
		}
		return code == "RUN_IN_PROGRESS", running
	},
}

// A race is several people's calls to one conversation, and what came of them.
type race struct {
	*rig
	began time.Time
	may   chan struct{}   // the coding agent may end its turn
	hangs <-chan struct{} // closed when all of it takes too long

	mu sync.Mutex
	// Guarded by mu.
	ops   []porcupine.Operation
	since map[protocol.CommandID]int64 // by clock; a run can't have ended before
	ended chan struct{}                // closed, and made anew, when a run is complete
	begun int
}

// play plays a process, which ends a turn once it may, or when it is stopped.
func (r *race) play(p *played) {
	var message protocol.CommandID
	for {
		may := r.may
		if message == "" {
			may = nil
		}
		select {
		case told := <-p.told:
			if text, sent := strings.CutPrefix(told, "send "); sent {
				message = protocol.CommandID(text)
				continue
			}
			if told != "abort" || message == "" {
				continue
			}
		case <-may:
		case <-p.exit:
			return
		}
		p.mu.Lock()
		if !p.ending { // or else the run may be over already
			r.notBefore(message)
		}
		p.mu.Unlock()
		message = ""
		select {
		case p.lines <- "done 0":
		case <-p.exit:
			return
		}
	}
}

// clock returns the time since the race began, which no change of the machine's
// clock disturbs.
func (r *race) clock() int64 { return int64(time.Since(r.began)) }

// notBefore notes that a run has not ended yet.
func (r *race) notBefore(run protocol.CommandID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since[run] = r.clock()
}

// note notes what came of an operation that is over now.
func (r *race) note(client int, in call, from int64, code string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case in.ends:
		from = r.since[in.run]
		close(r.ended)
		r.ended = make(chan struct{})
	case !in.abort && code == "":
		r.begun++
	}
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: in, Call: from, Output: code, Return: r.clock()})
}

// call has the conversation do one thing. Who can't go on until the run is over
// waits for that, and a sender lets the coding agent end its turn.
func (r *race) call(client int, in call) {
	r.notBefore(in.run)
	r.mu.Lock()
	ended := r.ended
	r.mu.Unlock()
	from := r.clock()
	answer := code(r.ask(session, r.id, func(o *owner) error {
		if in.abort {
			return o.abort(alice)
		}
		s := sending{command: in.run, user: alice}
		s.start.Dir, s.turn.ID, s.turn.Content = r.dir, string(in.run), string(in.run)
		return o.send(s)
	}))
	r.note(client, in, from, answer)
	switch {
	case in.abort && answer == "":
		r.await(ended, nil)
	case !in.abort && answer != "":
		r.await(ended, r.may)
	}
}

// await waits until a run is complete, or its coding agent was let end its turn.
func (r *race) await(ended <-chan struct{}, may chan<- struct{}) {
	select {
	case <-ended:
	case may <- struct{}{}:
	case <-r.hangs:
	}
}

// watch notes each complete as v sees it, up to that of the last run.
func (r *race) watch(v *viewer, client int, last protocol.CommandID) {
	for running := protocol.CommandID(""); ; {
		m, ok := v.message().(protocol.Chat)
		var e protocol.ChatEvent
		if err := json.Unmarshal(m.Bytes, &e); !ok || err != nil {
			r.t.Errorf("%+v: %v", m, err)
			return
		}
		switch {
		case e.Kind == protocol.ChatText && running == "":
			running = e.CommandID
		case e.Kind == protocol.ChatComplete && running == e.CommandID:
			running = ""
			r.note(client, call{run: e.CommandID, ends: true}, 0, "")
			if e.CommandID == last {
				return
			}
		case e.Kind != protocol.ChatError:
			r.t.Errorf("%s of %s while %q runs", e.Kind, e.CommandID, running)
		}
	}
}

// TestLinear: messages and aborts from several people at the same time, and the
// completes that somebody else sees, are as if one came after the other: a run
// begins only once the one before is complete, and has one complete.
func TestLinear(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(*calls)*time.Millisecond)
	defer cancel()
	r := &race{
		rig: newRig(t), began: time.Now(), may: make(chan struct{}), hangs: ctx.Done(),
		since: map[protocol.CommandID]int64{}, ended: make(chan struct{}),
	}
	r.make()
	var all, watching, callers sync.WaitGroup
	over := make(chan struct{})
	all.Go(func() {
		for {
			select {
			case p := <-r.programs.started:
				all.Go(func() { r.play(p) })
			case <-over:
				return
			}
		}
	})
	const people, last = 4, "last"
	v := r.view(bob, protocol.ChatParams{})
	watching.Go(func() { r.watch(v, people, last) })
	for client := range people {
		callers.Go(func() {
			for i := range *calls {
				r.call(client, call{abort: (i+client)%3 == 0, run: protocol.CommandID(fmt.Sprintf("cmd_%d_%d", client, i))})
			}
		})
	}
	callers.Wait()
	if ctx.Err() != nil {
		t.Fatalf("a run isn't completed, of %d", r.begun)
	}
	o, err := r.acquire(r.id)
	check(t, err)
	o.rest()
	r.release(o)
	r.call(people, call{run: last})
	close(r.may) // for all: one that ends, and doesn't know it yet, may not take it from the last
	watching.Wait()
	completes := len(r.ops) - people**calls - 1
	t.Logf("%d runs", r.begun)
	if completes != r.begun {
		t.Errorf("%d runs began, and %d are complete", r.begun, completes)
	}
	if result := porcupine.CheckOperationsTimeout(runModel, r.ops, patience); result != porcupine.Ok {
		t.Errorf("%s: %d operations", result, len(r.ops))
	}
	close(over)
	check(t, r.Chats.Close())
	all.Wait()
}
