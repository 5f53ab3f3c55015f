package standin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// claude is Claude Code: its stdio protocol with -p, and without it a plain
// conversation, line by line.
func claude(p *process) int {
	if p.has("--version", "-v") {
		p.write([]byte(claudeVersion + " (Claude Code)\n"))
		return 0
	}
	id, resumed := p.flag("--resume", "-r")
	if !resumed {
		id = newUUID()
	}
	t, err := newTranscript(p, id, resumed)
	if err != nil {
		fmt.Fprintln(p.err, err)
		return 1
	}
	o := &claudeOut{p: p, t: t, may: permissions{mode: "default"}, model: "claude-stand-in"}
	if mode, ok := p.flag("--permission-mode"); ok {
		o.may.mode = mode
	}
	if model, ok := p.flag("--model"); ok {
		o.model = model
	}
	o.may.allowed, o.may.disallowed = list(p, "--allowedTools"), list(p, "--disallowedTools")
	c := &claudeProcess{out: o, said: t.said}
	if !p.has("-p", "--print") {
		return c.converse()
	}
	return c.serve()
}

// list returns the value of a flag that holds words between commas.
func list(p *process, name string) []string {
	value, ok := p.flag(name)
	if !ok || value == "" {
		return nil
	}
	return strings.Split(value, ",")
}

// claudeProcess is a running claude.
type claudeProcess struct {
	out *claudeOut // static after construction

	// Owned by the goroutine that serves.
	said []string
	bad  bool // the last turn has failed

	deaf atomic.Bool // it no longer obeys an interrupt

	mu sync.Mutex
	// Guarded by mu.
	turns []*claudeTurn // those that aren't over, oldest first
	by    string        // the request that has aborted the oldest one
}

// A claudeTurn is a message that a person has sent.
type claudeTurn struct {
	uuid    string
	content json.RawMessage
	aborted chan struct{} // closed when it was aborted
}

// claudeInput is a line of claude's input.
type claudeInput struct {
	Type      string `json:"type"`
	UUID      string `json:"uuid"`
	RequestID string `json:"request_id"`
	Message   struct {
		Content json.RawMessage `json:"content"`
	} `json:"message"`
	Request struct {
		Subtype string `json:"subtype"`
	} `json:"request"`
	Response struct {
		RequestID string          `json:"request_id"`
		Response  json.RawMessage `json:"response"`
	} `json:"response"`
}

// serve speaks the stdio protocol until the input ends and all is done.
func (c *claudeProcess) serve() int {
	ctx, stop := untilSignal()
	defer stop()
	turns := make(chan *claudeTurn, 256)
	go c.read(turns) // ends with the input, at the latest with the process
	var later <-chan time.Time
	for {
		select {
		case t, more := <-turns:
			if !more && ctx.Err() != nil {
				forever() // whoever has ended ctx ends the process
			}
			if !more {
				return c.status()
			}
			wait, err := c.turn(ctx, t)
			if e, ends := errors.AsType[*exit](err); ends {
				return e.status
			}
			later = nil
			if wait > 0 {
				later = time.After(wait)
			}
		case <-later:
			later = nil
			c.ownTurn()
		case <-ctx.Done():
			forever() // whoever has ended ctx ends the process
		}
	}
}

func (c *claudeProcess) status() int {
	if c.bad {
		return 1
	}
	return 0
}

// untilSignal returns a context that ends with SIGINT or SIGTERM; soon after it
// the process does, so that its tools are killed before.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		s := <-signals
		cancel()
		time.Sleep(20 * time.Millisecond)
		os.Exit(128 + int(s.(syscall.Signal)))
	}()
	return ctx, cancel
}

// read takes lines of input and closes turns behind the last one.
func (c *claudeProcess) read(turns chan<- *claudeTurn) {
	lines := bufio.NewReaderSize(c.out.p.in, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		var in claudeInput
		if json.Unmarshal(line, &in) == nil {
			if t := c.take(&in); t != nil {
				turns <- t
			}
		}
		if err != nil {
			break
		}
	}
	c.out.asked.close()
	close(turns)
}

// take does what a line of input asks, or returns the turn that it begins.
func (c *claudeProcess) take(in *claudeInput) *claudeTurn {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch in.Type {
	case "user":
		t := &claudeTurn{uuid: in.UUID, content: in.Message.Content, aborted: make(chan struct{})}
		if t.uuid == "" {
			t.uuid = newUUID()
		}
		c.turns = append(c.turns, t)
		return t
	case "control_request":
		if in.Request.Subtype == "interrupt" && len(c.turns) > 0 {
			if c.by == "" && !c.deaf.Load() {
				c.by = in.RequestID
				close(c.turns[0].aborted)
			}
			return nil
		}
		c.out.respond(in.RequestID)
	case "control_response":
		c.out.asked.answer(in.Response.RequestID, in.Response.Response)
	}
	return nil
}

// over ends the oldest turn, and returns the request that has aborted it.
func (c *claudeProcess) over() (by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by, c.by = c.by, ""
	c.turns = c.turns[1:]
	return by
}

// turn does what a message says. It returns how long after it a turn of its own
// is to begin, and *exit if the process is to end.
func (c *claudeProcess) turn(ctx context.Context, t *claudeTurn) (later time.Duration, err error) {
	text, images := content(t.content)
	message := map[string]any{"role": "user", "content": t.content}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-t.aborted:
		cancel()
	default:
		go func() { // ends with the turn
			select {
			case <-t.aborted:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	c.out.begin()
	c.out.t.add("user", t.uuid, message, nil)
	c.out.print(line{Type: "user", UUID: t.uuid, Message: message, Replay: true, Time: now()})
	v := &claudeVoice{o: c.out, turn: t.uuid}
	s := &show{p: c.out.p, v: v, said: c.said, images: images, deaf: &c.deaf}
	err = s.perform(ctx, text)
	aborted := err != nil && ctx.Err() != nil
	by := c.over()
	c.said = append(c.said, text)
	bad, failed := errors.AsType[*failed](err)
	switch {
	case aborted:
		if by != "" {
			c.out.respond(by)
		}
		v.cut()
		c.result("error_during_execution", "", true)
	case failed:
		v.whole(bad.text)
		c.result("success", bad.text, true)
	case err != nil:
		return 0, err
	default: // also when an interrupt came too late
		v.endMessage("end_turn")
		c.result("success", v.latest, false)
	}
	if by != "" && !aborted {
		c.out.respond(by)
	}
	return s.later, nil
}

// ownTurn is one that nobody has asked for, as when a command has ended that ran
// in the background.
func (c *claudeProcess) ownTurn() {
	c.out.begin()
	v := &claudeVoice{o: c.out}
	(&show{p: c.out.p, v: v}).say("Something in the background is done")
	v.endMessage("end_turn")
	c.result("success", v.latest, false)
}

// result ends a turn.
func (c *claudeProcess) result(subtype, text string, bad bool) {
	c.bad = bad
	c.out.result(subtype, text, bad)
}

// converse talks to a person at a terminal: every line is a message, which is
// kept as those of the protocol are, and repeated.
func (c *claudeProcess) converse() int {
	for _, text := range c.said {
		fmt.Fprintf(c.out.p.err, "> %s\n", text)
	}
	c.out.p.write([]byte("claude stand-in, session " + c.out.t.id + "\n"))
	lines := bufio.NewScanner(c.out.p.in)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "/exit" {
			break
		}
		if text == "" {
			continue
		}
		c.out.t.add("user", newUUID(), map[string]any{"role": "user", "content": text}, nil)
		v := &claudeVoice{o: c.out, id: "msg_" + newUUID()}
		answer := "You said: " + text
		c.out.t.add("assistant", newUUID(), v.made([]any{map[string]any{"type": "text", "text": answer}}), nil)
		c.out.p.write([]byte(answer + "\n"))
	}
	return 0
}
