package printer

import (
	"bytes"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
)

// heard keeps what it hears.
type heard struct {
	text  []byte
	jumps int
	lost  int
}

func (h *heard) Output(p []byte, _ time.Time) { h.text = append(h.text, p...) }
func (h *heard) Jump(client.Jump)             { h.jumps++ }
func (h *heard) Lost(time.Time, error)        { h.lost++ }

// Answers are found wherever the output is cut, and each once.
func TestTake(t *testing.T) {
	term := &Terminal{}
	for _, b := range []byte("noise\r\nready 1\r\nready 2\r\nrea") {
		term.Output([]byte{b}, time.Now())
	}
	for _, want := range []string{"1", "2"} {
		if rest, found := term.take("ready"); !found || rest != want {
			t.Errorf("%q %v, want %q", rest, found, want)
		}
	}
	if rest, found := term.take("rea"); found {
		t.Errorf("half a line is an answer: %q", rest)
	}
	term.Output([]byte("dy 3\r\n"), time.Now())
	if rest, found := term.take("ready"); !found || rest != "3" {
		t.Errorf("%q %v", rest, found)
	}
}

// A stream isn't kept as if it were an answer.
func TestLinesAreBounded(t *testing.T) {
	term := &Terminal{}
	for range 3 {
		term.Output(bytes.Repeat([]byte("x"), maxLines-1), time.Now())
	}
	if n := len(term.lines); n > maxLines {
		t.Errorf("%d bytes are kept", n)
	}
}

// Who follows hears everything from then on, and no answers are kept.
func TestFollower(t *testing.T) {
	term, h := &Terminal{}, &heard{}
	term.Output([]byte("before"), time.Now())
	term.next = h
	term.Output([]byte("more"), time.Now())
	term.Jump(client.Jump{})
	term.Lost(time.Now(), nil)
	if string(h.text) != "more" || h.jumps != 1 || h.lost != 1 || string(term.lines) != "before" {
		t.Errorf("%+v, kept %q", h, term.lines)
	}
	term.next = nil
	term.Jump(client.Jump{})
	term.Lost(time.Now(), nil)
}
