package scenario

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// A side is one of those that are measured in turn: fairlead, or its baseline.
type side struct {
	phase  string             // of its groups while it is measured
	groups []*generator.Group // are told the phase; a side whose group is nil is left out
	run    func(ctx context.Context, block int) error
}

// maxBlocks bounds the blocks: a bound that is undecided then is missed.
const maxBlocks = 30

// EachBlock runs blocks until there are as many as wanted and every bound on a
// ratio is decided, at most 30. In each block every side is measured once.
func (e *Env) EachBlock(ctx context.Context, phase string, sides ...side) error {
	wanted := max(e.Options.Blocks, 1)
	for block := 0; block < wanted; block++ {
		e.Progress(phase, float64(block), float64(wanted))
		if err := inTurn(ctx, block, sides...); err != nil {
			return err
		}
		if block == wanted-1 && wanted < maxBlocks && e.undecided() {
			wanted++
		}
	}
	e.Progress(phase, float64(wanted), float64(wanted))
	return nil
}

// inTurn measures every side once. Each block begins with another side, so that
// a machine that becomes slower favours none.
func inTurn(ctx context.Context, block int, sides ...side) error {
	for i := range sides {
		s := sides[(i+block)%len(sides)]
		told := groups(s.groups...)
		if len(told) < len(s.groups) {
			continue
		}
		for _, g := range told {
			if err := g.Phase(ctx, s.phase, block); err != nil {
				return err
			}
		}
		if err := s.run(ctx, block); err != nil {
			return err
		}
	}
	return nil
}

// undecided reports whether more blocks would decide a bound.
func (e *Env) undecided() bool {
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

// beginAll makes groups record from now on. Groups may be nil.
func beginAll(ctx context.Context, all ...*generator.Group) error {
	for _, g := range groups(all...) {
		if err := g.Begin(ctx, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// groups returns those that are not nil.
func groups(all ...*generator.Group) []*generator.Group {
	var some []*generator.Group
	for _, g := range all {
		if g != nil {
			some = append(some, g)
		}
	}
	return some
}
