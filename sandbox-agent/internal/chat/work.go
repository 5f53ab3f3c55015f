package chat

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/control"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/life"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

const (
	// startFor bounds the start of a program.
	startFor = time.Minute
	// endFor bounds its end, by whatever signals.
	endFor = 30 * time.Second
	// leaveFor is how long one that nobody waits for may take to end by itself.
	leaveFor = 2 * time.Second
	// leaveWithin is how long one waits for its turn.
	leaveWithin = 10 * time.Second
)

// An engine is one process with its protocol.
type engine struct {
	process Process // nil while it starts
	talk    provider.Talk
	start   provider.Start
	cancel  context.CancelFunc // of the start
	left    chan struct{}      // closed when nothing of the process is left
	retired bool               // what it says concerns no run any more
	last    bool               // it can't do another turn
	ending  bool
	hurry   chan struct{} // closed: it has no time to end by itself
}

// work is what the owner does with processes. The owner alone uses it.
type work struct {
	engine *engine
	next   *sending // what begins when the present engine is gone
	by     provider.Provider
	coldAt time.Time // when a process that waits for a message has waited long enough; zero: none waits
}

// launch has a message worked on: by the process that waits for it, if that fits.
func (w *work) launch(o *owner, p provider.Provider, s sending) {
	w.coldAt = time.Time{}
	o.chats.noWarm(o)
	w.by = p
	e := w.engine
	switch {
	case e == nil:
		w.start(o, s)
	case !e.ending && !e.last && e.process != nil && e.start.Dir == s.start.Dir && e.talk.Fits(s.start) && !e.process.Stale():
		e.retired = false
		o.carryOut(e, e.talk.Send(s.turn))
	default:
		w.next = &s
		w.end(o)
	}
}

// start starts a process in the background.
func (w *work) start(o *owner, s sending) {
	ctx, cancel := context.WithTimeout(context.Background(), startFor)
	e := &engine{start: s.start, cancel: cancel, left: make(chan struct{}), hurry: make(chan struct{})}
	w.engine = e
	if e.start.Native == "" {
		e.start.Native = o.info().Native
	}
	e.talk = w.by.Talk(e.start)
	program := Program{
		Session: o.session, Conversation: o.id, Provider: w.by.Name(), Command: w.by.Command(e.start), Dir: e.start.Dir,
	}
	o.chats.owning.Go(func() { // ends with the start, which cancel ends
		process, err := o.chats.o.Programs.Start(ctx, program)
		if !o.post(func() { w.started(o, e, process, err, s.turn) }) && err == nil {
			process.Close()
		}
	})
}

// started goes on when the process runs, or says why it doesn't.
func (w *work) started(o *owner, e *engine, process Process, err error, turn provider.Turn) {
	if err != nil {
		e.cancel()
		w.engine = nil
		if !e.ending && !e.retired {
			o.emit([]protocol.ChatEvent{failure(protocol.AsError(err).Error())})
		}
		w.over(o, e, false)
		return
	}
	e.process = process
	o.chats.owning.Go(func() { w.pump(o, e) }) // ends with the process
	o.chats.counts.process(1)
	if e.ending {
		e.ending = false
		w.endEngine(o, e, 0)
		return
	}
	o.carryOut(e, e.talk.Begin())
	o.carryOut(e, e.talk.Send(turn))
}

// pump hands what the process prints to the owner, and then its end.
func (w *work) pump(o *owner, e *engine) {
	defer e.cancel()
	defer e.process.Close()
	for {
		line, err := e.process.Line()
		if long, ok := errors.AsType[LongLine](err); ok {
			o.post(func() { w.dropped(o, e, long) })
			continue
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				o.post(func() { w.unreadable(o, e, err) })
			}
			break
		}
		done := make(chan struct{})
		if !o.post(func() { defer close(done); w.line(o, e, line) }) {
			break
		}
		<-done // the line is valid until the next one
	}
	code, stderr := e.process.Wait()
	close(e.left)
	ctx, cancel := context.WithTimeout(context.Background(), endFor)
	defer cancel()
	err := e.process.End(ctx) // of what it has started
	o.post(func() { w.gone(o, e, code, stderr, err != nil) })
}

// line takes a line of the process.
func (w *work) line(o *owner, e *engine, line []byte) {
	if e != w.engine || e.retired {
		return
	}
	o.turn.heard = time.Now()
	o.carryOut(e, e.talk.Line(line))
}

// dropped says that a line is missing.
func (w *work) dropped(o *owner, e *engine, long LongLine) {
	if e == w.engine && !e.retired {
		o.turn.heard = time.Now()
		o.emit([]protocol.ChatEvent{failure(long.Error())})
	}
}

// unreadable ends a run whose process prints what nobody can read.
func (w *work) unreadable(o *owner, e *engine, err error) {
	if e == w.engine && !e.retired {
		o.fail("The run was ended: " + protocol.AsError(err).Error() + ".")
	}
}

// gone takes the end of the process.
func (w *work) gone(o *owner, e *engine, code int, stderr []byte, left bool) {
	if e != w.engine {
		return
	}
	o.chats.counts.process(-1)
	ended := e.ending
	e.ending = true
	if !e.retired {
		effects := e.talk.End(code, stderr)
		if ended { // nobody wonders why
			effects = slices.DeleteFunc(effects, isError)
		}
		o.carryOut(e, effects)
	}
	w.engine, w.coldAt = nil, time.Time{}
	o.chats.noWarm(o)
	w.over(o, e, left)
}

func isError(effect provider.Effect) bool {
	emit, ok := effect.(provider.Emit)
	return ok && emit.Event.Kind == protocol.ChatError
}

// over goes on when a process is gone: with the message that waits for that, or
// with the end of the run.
func (w *work) over(o *owner, e *engine, left bool) {
	if s := w.next; s != nil {
		w.next = nil
		w.start(o, *s)
		return
	}
	if !e.retired {
		o.step(life.Gone{Left: left})
	}
}

// interrupt stops the turn.
func (w *work) interrupt(o *owner) {
	switch e := w.engine; {
	case w.next != nil || e == nil: // its process was never begun
		w.next = nil
		o.step(life.Gone{})
	case e.process == nil:
		e.ending = true
		e.cancel()
	default:
		o.carryOut(e, e.talk.Abort())
	}
}

// end ends the process, if there is one, by signals.
func (w *work) end(o *owner) { w.ends(o, 0) }

// dismiss is end for a process that nobody waits for. The end of its input tells
// it to end, which costs the sandbox less than a look for all that it has started.
func (w *work) dismiss(o *owner) { w.ends(o, leaveFor) }

func (w *work) ends(o *owner, patience time.Duration) {
	switch e := w.engine; {
	case e == nil:
		if o.turn.life.State() != protocol.RunIdle && w.next == nil {
			o.step(life.Gone{})
		}
	case e.process == nil:
		e.ending = true
		e.cancel()
	default:
		w.endEngine(o, e, patience)
	}
	w.coldAt = time.Time{}
	o.chats.noWarm(o)
}

// endEngine ends a process that runs, in the background. It has so much time to
// end by itself, unless endEngine is called again.
func (w *work) endEngine(o *owner, e *engine, patience time.Duration) {
	if e.ending {
		e.hasten()
		return
	}
	e.ending = true
	o.chats.owning.Go(func() { // patience and endFor bound it
		if patience > 0 && e.leaves(patience, o.chats.leaving) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), endFor)
		defer cancel()
		if err := e.process.End(ctx); err != nil { // what can't be ended may keep its output open, too
			o.post(func() { w.gone(o, e, life.Unknown, nil, true) })
		}
	})
}

// leaves ends the process's input when it is its turn, and reports whether nothing
// is left of it after so much time.
func (e *engine) leaves(patience time.Duration, turns chan struct{}) bool {
	turn := time.NewTimer(leaveWithin)
	defer turn.Stop()
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-turn.C:
	case <-e.left:
		return true
	case <-e.hurry:
		return false
	}
	e.process.CloseInput()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-e.left:
		return true
	case <-e.hurry:
	case <-late.C:
	}
	return false
}

// hasten leaves a process no more time to end by itself.
func (e *engine) hasten() {
	select {
	case <-e.hurry:
	default:
		close(e.hurry)
	}
}

// ending reports whether the process is being ended.
func (w *work) ending() bool { return w.engine != nil && w.engine.ending }

// rest is called when a run is complete: the process waits for another message,
// if it can.
func (w *work) rest(o *owner) {
	e := w.engine
	if e == nil {
		return
	}
	e.retired = true
	if e.ending {
		return
	}
	if e.last || o.chats.o.MaxWarm < 0 || e.process.Stale() {
		w.dismiss(o)
		return
	}
	w.coldAt = time.Now().Add(o.chats.o.WarmFor)
	o.chats.keepWarm(o)
}

// due ends a process that has waited long enough.
func (w *work) due(o *owner, now time.Time) time.Duration {
	if w.coldAt.IsZero() {
		return control.Forever
	}
	if wait := w.coldAt.Sub(now); wait > 0 {
		return wait
	}
	w.dismiss(o)
	return control.Forever
}

// carryOut does what the protocol of e wants, in order. What it emits is stored
// together.
func (o *owner) carryOut(e *engine, effects []provider.Effect) {
	var events []protocol.ChatEvent
	for _, effect := range effects {
		if emit, ok := effect.(provider.Emit); ok {
			events = append(events, emit.Event)
			continue
		}
		o.emit(events)
		events = nil
		o.carry(e, effect)
	}
	o.emit(events)
}

// carry does one thing that a protocol wants.
func (o *owner) carry(e *engine, effect provider.Effect) {
	switch effect := effect.(type) {
	case provider.Write:
		if err := e.process.Write(effect.Bytes); err != nil && !e.ending {
			o.fail("The coding agent doesn't read what it is told: " + protocol.AsError(err).Error() + ".")
		}
	case provider.CloseInput:
		e.process.CloseInput()
	case provider.Native:
		if err := o.chats.setNative(o.session, o.id, effect.ID); err != nil {
			o.chats.o.Log.Error("a provider's id is not stored", "conversation", o.id, "err", err)
		}
	case provider.Ask:
		o.ask(effect)
	case provider.Withdraw:
		o.withdraw(effect.Question)
	case provider.Stop:
		o.turn.impatient = time.Time{}
		o.step(life.Impatience{})
	case provider.Done:
		e.last = e.last || effect.Last
		o.step(life.Done{ExitCode: effect.ExitCode})
	}
}

// answer answers a coding agent's question.
func (o *owner) answer(question string, a provider.Answer) {
	if e := o.work.engine; e != nil && e.process != nil {
		o.carryOut(e, e.talk.Answer(question, a))
	}
}
