package standin

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A step is one line of a script.
type step struct {
	name string // one of those in the package's comment
	text string // what is behind the colon
	tool string
	// input is the tool's, valid JSON.
	input json.RawMessage
	count int           // deltas, huge, exit
	rate  float64       // deltas in a second; 0: as fast as it can
	size  int           // bytes of a delta at least
	wait  time.Duration // sleep, withdraw, later
}

// parseScript returns the steps of a message.
func parseScript(message string) []step {
	var steps []step
	for line := range strings.Lines(message) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		s, err := parseStep(line)
		if err != nil {
			s = step{name: "say", text: "You said: " + line}
		}
		steps = append(steps, s)
	}
	return steps
}

var errNoStep = errors.New("not a step")

// parseStep parses one line.
func parseStep(line string) (step, error) {
	name, text, colon := strings.Cut(line, ":")
	s := step{name: name, text: text}
	var err error
	switch name {
	case "question", "images", "recall", "garbage", "halfutf8", "silent", "ignore-int", "crash", "fork", "fork-away":
		if colon {
			return step{}, errNoStep
		}
		return s, nil
	case "huge":
		s.count = 10 << 20
		if !colon {
			return s, nil
		}
		s.count, err = number(text)
	case "say", "think", "plan", "env", "stderr", "fail":
	case "deltas":
		err = s.parseDeltas(text)
	case "tool", "ask":
		s.tool, text, _ = strings.Cut(text, " ")
		s.input = json.RawMessage(strings.TrimSpace(text))
		if len(s.input) == 0 {
			s.input = json.RawMessage("{}")
		}
		if s.tool == "" || !json.Valid(s.input) {
			err = errNoStep
		}
	case "sleep", "withdraw", "later":
		s.wait, err = time.ParseDuration(text)
	case "exit":
		s.count, err = number(text)
	default:
		err = errNoStep
	}
	if err == nil && !colon {
		err = errNoStep
	}
	return s, err
}

// parseDeltas parses N, N@RATE or N@RATE/BYTES.
func (s *step) parseDeltas(text string) (err error) {
	text, size, sized := strings.Cut(text, "/")
	if sized {
		if s.size, err = number(size); err != nil {
			return err
		}
	}
	count, rate, rated := strings.Cut(text, "@")
	if rated {
		s.rate, err = strconv.ParseFloat(rate, 64)
		if err != nil || !(s.rate > 0) {
			return fmt.Errorf("rate %q", rate)
		}
	}
	s.count, err = number(count)
	return err
}

// number parses a count of at most 1 GiB.
func number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil && (n < 0 || n > 1<<30) {
		err = errNoStep
	}
	return n, err
}
