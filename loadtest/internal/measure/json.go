package measure

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxResultBytes bounds a result that is read.
const maxResultBytes = 256 << 20

// maxListed bounds the figures, latencies and the like of a result that is
// read, maxPoints its points.
const maxListed = 4 * maxNames * 16

// Encode writes the result as JSON. Decode reads it.
func (r *Result) Encode(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// Decode reads a result that Encode wrote. It refuses other versions, fields it
// does not know, and more than a result can hold.
func Decode(from io.Reader) (*Result, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxResultBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if len(data) > maxResultBytes {
		return nil, fmt.Errorf("read result: over %d bytes", maxResultBytes)
	}
	// The version comes first: another one may have other fields.
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if head.Version == nil {
		return nil, errors.New("read result: this is not the result of a load test")
	}
	if *head.Version != Version {
		return nil, fmt.Errorf("read result: version %d, want %d", *head.Version, Version)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	r := new(Result)
	if err := dec.Decode(r); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read result: something follows it")
	}
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	return r, nil
}

// validate returns an error when a result holds what none can hold.
func (r *Result) validate() error {
	for name, n := range map[string]int{
		"figures": len(r.Figures), "latencies": len(r.Latencies), "counters": len(r.Counters),
		"processes": len(r.Processes), "phases": len(r.Phases), "events": len(r.Events),
		"failures": len(r.Failures), "notes": len(r.Notes), "verdicts": len(r.Verdicts),
	} {
		if n > maxListed {
			return fmt.Errorf("%d %s", n, name)
		}
	}
	if r.ClockError < 0 {
		return fmt.Errorf("clocks that agree within %v s", r.ClockError)
	}
	for _, f := range r.Figures {
		if len(f.Blocks) > maxBlocks {
			return fmt.Errorf("%d blocks of %q", len(f.Blocks), f.Name)
		}
	}
	for _, s := range r.Latencies {
		if len(s.Points) > maxPoints {
			return fmt.Errorf("%d points of %q", len(s.Points), s.Name)
		}
		if _, err := s.Distribution(); err != nil {
			return fmt.Errorf("latency %q: %w", s.Name, err)
		}
	}
	for _, c := range r.Counters {
		if len(c.Points) > maxPoints {
			return fmt.Errorf("%d points of %q", len(c.Points), c.Name)
		}
	}
	for _, p := range r.Processes {
		if len(p.Points) > maxPoints {
			return fmt.Errorf("%d points of %q", len(p.Points), p.Name)
		}
	}
	return nil
}
