package provider

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/standin"
	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) {
	standin.Hook()
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for a program: only a hang reaches it.
const patience = time.Minute

// A machine is where stand-ins work: a home and a folder.
type machine struct {
	home, dir string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	return machine{home: t.TempDir(), dir: t.TempDir()}
}

// A running is a stand-in with the talk that drives it.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan []byte // closed when the output has ended
	errors *bytes.Buffer
	talk   Talk
	native string
	ended  bool
}

// maxTestLine is where the reader cuts a line.
const maxTestLine = 1 << 20

// start starts a stand-in for p, in m.
func (m machine) start(t *testing.T, p Provider, s Start) *running {
	t.Helper()
	s.Dir = m.dir
	c := p.Command(s)
	cmd := exec.Command(os.Args[0], append([]string{standin.Role, c.Program}, c.Args...)...)
	cmd.Dir = m.dir
	cmd.Env = append(append(os.Environ(), "HOME="+m.home), c.Env...)
	r := &running{t: t, cmd: cmd, lines: make(chan []byte), errors: new(bytes.Buffer), talk: p.Talk(s), native: s.Native}
	cmd.Stderr = r.errors
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.in = in
	go r.read(out) // ends with the output, which Cleanup ends
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		for range r.lines {
		}
		_ = cmd.Wait()
	})
	r.apply(r.talk.Begin(), nil)
	return r
}

// read gives the lines of out, each cut at maxTestLine.
func (r *running) read(out io.Reader) {
	defer close(r.lines)
	b := bufio.NewReaderSize(out, 64<<10)
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		line = append(line, part[:min(len(part), maxTestLine-len(line))]...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if len(line) > 0 {
			r.lines <- bytes.TrimSuffix(bytes.Clone(line), []byte("\n"))
			line = line[:0]
		}
		if err != nil {
			return
		}
	}
}

// A reaction is what a test does with an effect: it may return further ones.
type reaction func(Effect) []Effect

// turn sends a message and returns what comes of it, Done at the end.
func (r *running) turn(turn Turn, react reaction) []Effect {
	r.t.Helper()
	all, done := r.apply(r.talk.Send(turn), react)
	deadline := time.After(patience)
	for !done {
		var more []Effect
		select {
		case line, ok := <-r.lines:
			if !ok {
				more, done = r.apply(r.end(), react)
				all = append(all, more...)
				if !done {
					r.t.Fatalf("it has ended, and the turn hasn't: %#v", all)
				}
				return all
			}
			more, done = r.apply(r.talk.Line(line), react)
			all = append(all, more...)
		case <-deadline:
			r.t.Fatalf("no end of the turn: %#v", all)
		}
	}
	return all
}

// end waits for the process and tells the talk.
func (r *running) end() []Effect {
	_ = r.cmd.Wait() // its status says all
	r.ended = true
	return r.talk.End(r.cmd.ProcessState.ExitCode(), r.errors.Bytes())
}

// apply does effects and returns them with those that react adds.
func (r *running) apply(effects []Effect, react reaction) (all []Effect, done bool) {
	for _, e := range effects {
		all = append(all, e)
		switch e := e.(type) {
		case Write:
			if _, err := r.in.Write(e.Bytes); err != nil && !r.ended {
				r.t.Logf("write: %v", err)
			}
		case CloseInput:
			_ = r.in.Close() // it may be closed
		case Native:
			r.native = e.ID
		case Stop:
			_ = r.cmd.Process.Signal(os.Interrupt) // it may have ended
		case Done:
			done = true
		}
		if react != nil {
			more, over := r.apply(react(e), nil)
			all, done = append(all, more...), done || over
		}
	}
	return all, done
}

// always answers every question with a.
func (r *running) always(a Answer) reaction {
	return func(e Effect) []Effect {
		if ask, ok := e.(Ask); ok {
			return r.talk.Answer(ask.Question, a)
		}
		return nil
	}
}

// events returns the events among effects.
func events(effects []Effect) (events []protocol.ChatEvent) {
	for _, e := range effects {
		if e, ok := e.(Emit); ok {
			events = append(events, e.Event)
		}
	}
	return events
}

// lastDone returns the Done that a turn's effects end with; it is the only one.
func lastDone(t *testing.T, effects []Effect) Done {
	t.Helper()
	n := 0
	for _, e := range effects {
		if _, ok := e.(Done); ok {
			n++
		}
	}
	done, ok := effects[len(effects)-1].(Done)
	if n != 1 || !ok {
		t.Fatalf("%d ends of a turn in %#v", n, effects)
	}
	return done
}

// text is an event's content.
func text(e protocol.ChatEvent) string {
	if e.Content == nil {
		return ""
	}
	return *e.Content
}

// kinds returns the kinds of events, neighbouring deltas as one.
func kinds(events []protocol.ChatEvent) (kinds []protocol.ChatKind) {
	for _, e := range events {
		if n := len(kinds); n == 0 || kinds[n-1] != e.Kind || e.Kind != protocol.ChatStreamDelta {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}
