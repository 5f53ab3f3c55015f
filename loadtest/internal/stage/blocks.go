package stage

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// A side is one of those that are measured in turn: fairlead, or its baseline.
type Side struct {
	Phase  string             // of its groups while it is measured
	Groups []*generator.Group // are told the phase; a side whose group is nil is left out
	Run    func(ctx context.Context, block int) error
}

// MaxBlocks bounds the blocks: a bound that is undecided then is missed.
const MaxBlocks = 30

// EachBlock runs blocks until there are as many as wanted and every bound on a
// ratio is decided, at most 30. In each block every side is measured once.
func (e *Env) EachBlock(ctx context.Context, phase string, sides ...Side) error {
	wanted := max(e.Options.Blocks, 1)
	for block := 0; block < wanted; block++ {
		e.Progress(phase, float64(block), float64(wanted))
		if err := InTurn(ctx, block, sides...); err != nil {
			return err
		}
		if block == wanted-1 && wanted < MaxBlocks && e.Undecided() {
			wanted++
		}
	}
	e.Progress(phase, float64(wanted), float64(wanted))
	return nil
}

// InTurn measures every side once. Each block begins with another side, so that
// a machine that becomes slower favours none.
func InTurn(ctx context.Context, block int, sides ...Side) error {
	for i := range sides {
		s := sides[(i+block)%len(sides)]
		told := Groups(s.Groups...)
		if len(told) < len(s.Groups) {
			continue
		}
		for _, g := range told {
			if err := g.Phase(ctx, s.Phase, block); err != nil {
				return err
			}
		}
		if err := s.Run(ctx, block); err != nil {
			return err
		}
	}
	return nil
}

// Undecided reports whether more blocks would decide a bound.
func (e *Env) Undecided() bool {
	if len(e.Options.SLOs) == 0 {
		return false
	}
	for _, v := range measure.Judge(e.Out.Result(measure.Info{Start: time.Now()}), e.Options.SLOs) {
		if v.Undecided {
			return true
		}
	}
	return false
}

// BeginAll makes groups record from now on. Groups may be nil.
func BeginAll(ctx context.Context, all ...*generator.Group) error {
	for _, g := range Groups(all...) {
		if err := g.Begin(ctx, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// Groups returns those that are not nil.
func Groups(all ...*generator.Group) []*generator.Group {
	var some []*generator.Group
	for _, g := range all {
		if g != nil {
			some = append(some, g)
		}
	}
	return some
}
