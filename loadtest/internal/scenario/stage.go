package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/eventloop"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/loadtest/internal/printer"
	"github.com/fairlead/fairlead/loadtest/internal/skew"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// lead is the time between the order to print a stream and its first chunk.
	lead = 500 * time.Millisecond
	// stragglers is how long viewers may take to get the rest after the end of a
	// stream. What is missing then is lost.
	stragglers = 10 * time.Second
	// settle is the time after that in which nothing more may come.
	settle = 300 * time.Millisecond
	// endWait bounds the cleaning up after a scenario.
	endWait = 15 * time.Second
	// joinWait bounds the join of a thousand viewers.
	joinWait = 60 * time.Second
	// never is longer than any run.
	never = 24 * time.Hour
)

// A stage is terminals in which the source runs, and their viewers.
type stage struct {
	// Static after construction.
	env      *Env
	owner    *client.User
	loop     *eventloop.Loop
	program  *printer.Program
	clock    *skew.Clock // the source's, where anything is timed by it and it isn't ours
	streams  int         // made so far: no two have the same seed
	terminal []*printer.Terminal
}

// newStage opens terminals.
func newStage(ctx context.Context, env *Env, terminals int) (_ *stage, err error) {
	s := &stage{env: env}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.loop, err = eventloop.New(nil); err != nil {
		return nil, err
	}
	s.owner = env.Owner()
	env.Progress("terminals", 0, float64(terminals))
	if env.Options.Simulated {
		s.program = printer.Simulated(s.owner)
	} else if s.program, err = printer.Install(ctx, s.owner); err != nil {
		return nil, err
	}
	for i := range terminals {
		t, err := s.program.Open(ctx, s.loop)
		if err != nil {
			return nil, err
		}
		s.terminal = append(s.terminal, t)
		env.Progress("terminals", float64(i+1), float64(terminals))
	}
	if env.Local == nil && terminals > 0 && env.Out.CrossesClocks() {
		env.Progress("comparing clocks", 0, 1)
		s.clock, err = skew.Read(ctx, s.terminal[0], env.Out)
	}
	return s, err
}

// onStage returns a Run that opens so many terminals first and closes them at
// its end.
func onStage(terminals func(*Options) int, run func(context.Context, *stage) error) func(context.Context, *Env) error {
	return func(ctx context.Context, env *Env) error {
		s, err := newStage(ctx, env, terminals(env.Options))
		if err != nil {
			return err
		}
		defer s.close()
		if err := run(ctx, s); err != nil {
			return err
		}
		return s.clock.Settle(ctx)
	}
}

func one(*Options) int { return 1 }

// close ends the terminals and removes what was put into the workspace. It
// works after the scenario's context has ended.
func (s *stage) close() {
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	defer cancel()
	var errs []error
	for _, t := range s.terminal {
		errs = append(errs, t.Close(ctx))
	}
	if s.program != nil {
		errs = append(errs, s.program.Remove(ctx))
	}
	if s.owner != nil {
		s.owner.Close()
	}
	if s.loop != nil {
		s.loop.Close()
	}
	if err := errors.Join(errs...); err != nil {
		s.env.Log.Warn("cleaning up", "err", err)
	}
}

// ptys returns the terminals' ids.
func (s *stage) ptys() []protocol.PTYID {
	var all []protocol.PTYID
	for _, t := range s.terminal {
		all = append(all, t.PTY)
	}
	return all
}

// stream returns the next stream, which lasts so long.
func (s *stage) stream(rate float64, chunk int, lasts time.Duration) pattern.Spec {
	s.streams++
	return pattern.Spec{
		Seed: s.env.Options.Seed<<16 + uint64(s.streams), Chunk: chunk, Rate: rate, Burst: 1,
		Start: time.Now().Add(lead).Truncate(time.Microsecond), Chunks: max(1, int(rate*lasts.Seconds()+0.5)),
	}
}

// print makes terminal i print a stream.
func (s *stage) print(ctx context.Context, i int, spec pattern.Spec) error {
	spec.Start = spec.Start.Add(s.clock.Ahead())
	return s.terminal[i].Order(ctx, spec.Order())
}

// base returns the offset of each terminal's next byte.
func (s *stage) base() []uint64 {
	var all []uint64
	for _, t := range s.terminal {
		all = append(all, t.Viewer.Position().Offset)
	}
	return all
}

// An audience says which viewers [stage.gather] starts.
type audience struct {
	each  int // of each terminal
	spec  viewers.Spec
	rate  float64 // messages per second that each gets, to choose the number of processes
	extra int     // sockets of other groups
}

// bring starts viewers, which record from now on, and waits until all have
// joined. phase is the name of that, if it has one.
func (s *stage) bring(ctx context.Context, a audience, phase string) (*generator.Group, error) {
	g, err := s.gather(ctx, a)
	if err == nil && phase != "" {
		err = g.Phase(ctx, phase, -1)
	}
	if err == nil {
		err = g.Begin(ctx, time.Now())
	}
	if err == nil {
		err = s.join(ctx, g, a.each*len(s.terminal))
	}
	return g, err
}

// gather starts generator processes for viewers, which do not join yet.
func (s *stage) gather(ctx context.Context, a audience) (*generator.Group, error) {
	spec := a.spec
	terminals := 1
	if spec.URL == "" {
		spec.Session, spec.Relays = s.env.Target.Session, s.env.origins()
		spec.PTYs, spec.OwnGrants = s.ptys(), s.env.Options.OwnGrants
		terminals = len(spec.PTYs)
		people, err := s.env.watchers(a.each * terminals)
		if err != nil {
			return nil, err
		}
		for _, u := range people {
			spec.Tokens = append(spec.Tokens, u.Token)
		}
	}
	total := a.each * terminals
	processes := s.env.Options.Generators
	if processes <= 0 {
		processes = generator.Processes(total, a.rate)
	}
	processes = max(1, min(processes, a.each))
	if err := generator.Fits(total+a.extra, processes); err != nil {
		return nil, err
	}
	var specs []any
	for i := range processes {
		share := spec
		share.Viewers = a.each*(i+1)/processes - a.each*i/processes
		specs = append(specs, share)
	}
	return s.env.Generators.Start(ctx, viewers.Kind, specs)
}

// join makes a group's viewers join. It fails unless all are admitted.
func (s *stage) join(ctx context.Context, g *generator.Group, total int) error {
	within := joinWait + time.Duration(total)*20*time.Millisecond
	order := viewers.Join{Start: time.Now(), Within: within}
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with watching
		defer close(done)
		s.watchJoin(watching, g, total)
	}()
	joined, err := generator.Sum[viewers.Joined](ctx, g, viewers.OrderJoin, order)
	stop()
	<-done
	if err != nil {
		return err
	}
	if joined.In != total {
		return fmt.Errorf("%d of %d viewers are in after %v: %s", joined.In, total, within, joined.Why)
	}
	s.env.Progress("joining", float64(total), float64(total))
	return nil
}

// watchJoin shows the progress of a join until ctx ends.
func (s *stage) watchJoin(ctx context.Context, g *generator.Group, total int) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		sum, err := generator.Sum[viewers.Counts](ctx, g, viewers.OrderCounts)
		if err != nil {
			return
		}
		s.env.Progress("joining", float64(sum.Connected), float64(total))
	}
}

// arm begins a check by a group.
func arm(ctx context.Context, g *generator.Group, a viewers.Arm) error {
	_, err := g.Ask(ctx, viewers.OrderArm, a)
	return err
}

// finish ends the check, at the latest when stragglers is over after end, and
// returns what all viewers got.
func finish(ctx context.Context, g *generator.Group, end time.Time) (viewers.Tally, error) {
	return finishBy(ctx, g, end.Add(stragglers))
}

func finishBy(ctx context.Context, g *generator.Group, deadline time.Time) (viewers.Tally, error) {
	return generator.Sum[viewers.Tally](ctx, g, viewers.OrderFinish, viewers.Finish{Deadline: deadline, Settle: settle})
}

// complain says at once what viewers didn't get. where begins the sentence.
func (e *Env) complain(where string, t viewers.Tally) {
	if bad := t.Viewers - t.Clean; bad > 0 {
		e.Say("%s%d of %d viewers didn't get exactly what was printed: %d bytes lost, %d doubled, %d corrupt", where, bad, t.Viewers, t.Lost, t.Duplicate, t.Corrupt)
	}
}

// tellCost records the processor time of each of n things in a block, if that
// is known.
func (e *Env) tellCost(figure string, block int, used func() (time.Duration, bool), n int64) {
	if cpu, ok := used(); ok && n > 0 {
		e.Out.BlockAt(figure, block, cpu.Seconds()/float64(n))
	}
}

// streams returns the streams of a check of one terminal.
func streams(spec ...pattern.Spec) []pattern.Spec { return spec }

// endOf returns when the last chunk of all streams is due.
func endOf(streams ...pattern.Spec) time.Time {
	var last time.Time
	for _, s := range streams {
		if end, ok := s.End(); ok && end.After(last) {
			last = end
		}
	}
	return last
}

// relayPIDs returns the relays' processes as they are now.
func (e *Env) relayPIDs() []int {
	var pids []int
	for _, r := range e.Now().Relays {
		if r.PID != 0 {
			pids = append(pids, r.PID)
		}
	}
	return pids
}

// received is the metric that progress and plots show of output.
var received = measure.Metric{Name: "received_bytes", Kind: measure.KindCounter, Unit: "B", Help: "output that came, at all viewers together"}

// exactness are the metrics of every scenario whose viewers must get every byte.
var exactness = []measure.Metric{
	{Name: "lost_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that the source wrote and a viewer didn't get, announced or not", Headline: true, LowerIsBetter: true, MustBeZero: true},
	{Name: "duplicate_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that a viewer got twice", LowerIsBetter: true, MustBeZero: true},
	{Name: "corrupt_streams", Kind: measure.KindCounter, Help: "streams of a viewer whose bytes or SHA-256 are not the source's", LowerIsBetter: true, MustBeZero: true},
}

// exactEcho are the metrics of every scenario in which a typist gets every key
// back.
var exactEcho = []measure.Metric{
	{Name: "lost_keys", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "keystrokes whose echo wasn't back after 10 s"},
	{Name: "garbled_keys", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "bytes that came and weren't the next key"},
}
