package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
)

// A voice says in a program's protocol what a script has the program do.
type voice interface {
	// delta says a piece of a text; endText ends the text.
	delta(text string)
	endText()
	think(text string)
	// use tells that a tool is used, and asks whether it may be if ask says so or
	// the permission mode does. It returns the input that the tool gets, or a
	// *refusal. Each use has another id.
	use(ctx context.Context, u use) (input json.RawMessage, err error)
	// useID makes the id of a use.
	useID() string
	// result tells what came of a use.
	result(u use, output string, failed bool)
}

// A use is one use of a tool.
type use struct {
	id     string
	name   string
	input  json.RawMessage
	ask    bool
	giveUp time.Duration // how long it waits for an answer before it takes the question back; 0: forever
}

// A refusal is why a tool may not be used.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// errWithdrawn is why a tool isn't used whose question was taken back.
var errWithdrawn = &refusal{"the question was taken back"}

// An exit ends the process with a status.
type exit struct{ status int }

func (e *exit) Error() string { return "exit " + strconv.Itoa(e.status) }

// A failed ends a turn with an error.
type failed struct{ text string }

func (f *failed) Error() string { return f.text }

// A show is the performance of one message's script.
type show struct {
	p      *process
	v      voice
	said   []string      // what it was told before
	images []int         // their bytes
	later  time.Duration // when a turn of its own begins; 0: never
	deaf   *atomic.Bool  // it no longer obeys an abort
}

// perform does what a message says. It returns ctx's error after an abort, *exit
// if the process is to end, *failed if the turn has failed.
func (s *show) perform(ctx context.Context, message string) error {
	for _, step := range parseScript(message) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.do(ctx, step); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *show) do(ctx context.Context, t step) error {
	switch t.name {
	case "say":
		s.say(t.text)
	case "think":
		s.v.think(t.text)
	case "deltas":
		return s.deltas(ctx, t)
	case "tool", "ask":
		return s.tool(ctx, use{name: t.tool, input: t.input, ask: t.name == "ask"})
	case "withdraw":
		return s.tool(ctx, use{name: "Bash", input: object("command", "true"), ask: true, giveUp: t.wait})
	case "question":
		return s.tool(ctx, use{name: askUserQuestion, input: json.RawMessage(choice), ask: true})
	case "plan":
		return s.tool(ctx, use{name: exitPlanMode, input: object("plan", t.text), ask: true})
	case "images":
		s.say(fmt.Sprintf("%d images: %v", len(s.images), s.images))
	case "recall":
		s.say(strings.Join(s.said, "\n"))
	case "env":
		s.say(t.text + "=" + os.Getenv(t.text))
	case "stderr":
		fmt.Fprintln(s.p.err, t.text)
	case "sleep":
		return pause.For(ctx, t.wait)
	case "later":
		s.later = t.wait
	case "fail":
		return &failed{t.text}
	default:
		return s.misbehave(t)
	}
	return nil
}

// say says a text word by word.
func (s *show) say(text string) {
	for word := range strings.SplitAfterSeq(text, " ") {
		if word != "" {
			s.v.delta(word)
		}
	}
	s.v.endText()
}

// deltas says words at a rate, by the clock: one that is late doesn't delay the
// next one.
func (s *show) deltas(ctx context.Context, t step) error {
	began := time.Now()
	var word []byte
	for i := range t.count {
		if t.rate > 0 {
			if err := pause.Until(ctx, began.Add(time.Duration(float64(i)/t.rate*float64(time.Second)))); err != nil {
				return err
			}
		} else if ctx.Err() != nil {
			return ctx.Err()
		}
		word = strconv.AppendInt(word[:0], int64(i), 10)
		word = strconv.AppendInt(append(word, ':'), time.Now().UnixNano(), 10)
		if pad := t.size - len(word) - 1; pad > 0 {
			word = append(word, bytes.Repeat([]byte{'.'}, pad)...)
		}
		s.v.delta(string(append(word, ' ')))
	}
	s.v.endText()
	return nil
}

// tool uses a tool, and says something of what was answered to a question.
func (s *show) tool(ctx context.Context, u use) error {
	u.id = s.v.useID()
	input, err := s.v.use(ctx, u)
	if no, refused := errors.AsType[*refusal](err); refused {
		s.v.result(u, no.text, true)
		return nil
	}
	if err != nil {
		return err
	}
	output, bad := runTool(ctx, s.p.dir, u.name, input)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.v.result(u, output, bad)
	if u.name == askUserQuestion {
		s.say(output)
	}
	return nil
}

// object returns a JSON object with one string.
func object(name, value string) json.RawMessage {
	b, _ := json.Marshal(map[string]string{name: value}) // can't fail
	return b
}

// forever does nothing until the process is killed.
func forever() {
	for {
		_ = syscall.Pause() // a signal that is handled ends it
	}
}

// misbehave does what no program should.
func (s *show) misbehave(t step) error {
	switch t.name {
	case "huge":
		s.p.write(append(bytes.Repeat([]byte{'x'}, t.count), '\n'))
	case "garbage":
		s.p.write([]byte("Warning: this is no JSON\n\n{\n[]\n\"text\"\nnull\n{\"type\":7}\n{\"type\":\"nobody_knows\",\"x\":[{}]}\n\x00\x01\x1b[31m\n"))
		s.p.write(append(bytes.Repeat([]byte(`{"a":`), 100_000), '\n'))
	case "halfutf8":
		s.p.write([]byte("{\"half\":\"\xe2\x82\"}\nhalf \xe2\x82\n"))
	case "silent":
		forever()
	case "ignore-int":
		s.deaf.Store(true)
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // itself
		forever()
	case "exit":
		return &exit{t.count}
	case "fork", "fork-away":
		child := exec.Command("sleep", "60")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: t.name == "fork-away"}
		if err := child.Start(); err != nil {
			return &failed{err.Error()}
		}
		return &exit{0}
	}
	return nil
}
