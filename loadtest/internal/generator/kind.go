// Package generator makes load in child processes, as many as it takes, and
// brings together what they measured.
//
// A child is this executable again, with the hidden command `generator`; both
// sides speak lines of JSON over its standard input and output. It ends with
// its parent.
package generator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// A Job is what a worker is made from.
type Job struct {
	Spec  json.RawMessage // its share of the work
	Index int             // which of the processes it is
	Of    int             // how many there are
	Rec   *measure.Recorder
}

// Decode reads the specification into v.
func (j *Job) Decode(v any) error {
	if err := json.Unmarshal(j.Spec, v); err != nil {
		return fmt.Errorf("specification of a generator: %w", err)
	}
	return nil
}

// A Worker does what it is told, in a process of its own.
type Worker interface {
	// Do carries out an order and returns what to answer. Orders may overlap.
	// It must return soon after ctx has ended.
	Do(ctx context.Context, order string, arg json.RawMessage) (answer any, err error)
	// Close ends all that the worker started.
	Close()
}

// A Kind makes workers of one sort.
type Kind func(ctx context.Context, job *Job) (Worker, error)

// kinds are those that a child of this executable knows.
var kinds = struct {
	mu sync.Mutex
	by map[string]Kind
}{by: make(map[string]Kind)}

// Register makes a kind known under a name. It is called before [Serve].
func Register(name string, kind Kind) {
	kinds.mu.Lock()
	defer kinds.mu.Unlock()
	kinds.by[name] = kind
}

func find(name string) (Kind, error) {
	kinds.mu.Lock()
	defer kinds.mu.Unlock()
	if kind, ok := kinds.by[name]; ok {
		return kind, nil
	}
	return nil, fmt.Errorf("no kind of generator is called %q, there are %q", name, slices.Sorted(maps.Keys(kinds.by)))
}
