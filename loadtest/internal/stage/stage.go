package stage

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
	// Lead is the time between the order to print a stream and its first chunk.
	Lead = 500 * time.Millisecond
	// stragglers is how long viewers may take to get the rest after the end of a
	// stream. What is missing then is lost.
	stragglers = 10 * time.Second
	// settle is the time after that in which nothing more may come.
	settle = 300 * time.Millisecond
	// EndWait bounds the cleaning up after a scenario.
	EndWait = 15 * time.Second
	// JoinWait bounds the join of a thousand viewers.
	JoinWait = 60 * time.Second
	// Never is longer than any run.
	Never = 24 * time.Hour
)

// A stage is terminals in which the source runs, and their viewers.
type Stage struct {
	// Static after construction.
	Env      *Env
	Owner    *client.User
	Loop     *eventloop.Loop
	Program  *printer.Program
	Clock    *skew.Clock // the source's, where anything is timed by it and it isn't ours
	Streams  int         // made so far: no two have the same seed
	Terminal []*printer.Terminal
}

// NewStage opens terminals.
func NewStage(ctx context.Context, env *Env, terminals int) (_ *Stage, err error) {
	s := &Stage{Env: env}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.Loop, err = eventloop.New(nil); err != nil {
		return nil, err
	}
	s.Owner = env.Owner()
	env.Progress("terminals", 0, float64(terminals))
	if env.Options.Simulated {
		s.Program = printer.Simulated(s.Owner)
	} else if s.Program, err = printer.Install(ctx, s.Owner); err != nil {
		return nil, err
	}
	for i := range terminals {
		t, err := s.Program.Open(ctx, s.Loop)
		if err != nil {
			return nil, err
		}
		s.Terminal = append(s.Terminal, t)
		env.Progress("terminals", float64(i+1), float64(terminals))
	}
	if env.Local == nil && terminals > 0 && env.Out.CrossesClocks() {
		env.Progress("comparing clocks", 0, 1)
		s.Clock, err = skew.Read(ctx, s.Terminal[0], env.Out)
	}
	return s, err
}

// OnStage returns a Run that opens so many terminals first and closes them at
// its end.
func OnStage(terminals func(*Options) int, run func(context.Context, *Stage) error) func(context.Context, *Env) error {
	return func(ctx context.Context, env *Env) error {
		s, err := NewStage(ctx, env, terminals(env.Options))
		if err != nil {
			return err
		}
		defer s.Close()
		if err := run(ctx, s); err != nil {
			return err
		}
		return s.Clock.Settle(ctx)
	}
}

func One(*Options) int { return 1 }

// Close ends the terminals and removes what was put into the workspace. It
// works after the scenario's context has ended.
func (s *Stage) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), EndWait)
	defer cancel()
	var errs []error
	for _, t := range s.Terminal {
		errs = append(errs, t.Close(ctx))
	}
	if s.Program != nil {
		errs = append(errs, s.Program.Remove(ctx))
	}
	if s.Owner != nil {
		s.Owner.Close()
	}
	if s.Loop != nil {
		s.Loop.Close()
	}
	if err := errors.Join(errs...); err != nil {
		s.Env.Log.Warn("cleaning up", "err", err)
	}
}

// ptys returns the terminals' ids.
func (s *Stage) ptys() []protocol.PTYID {
	var all []protocol.PTYID
	for _, t := range s.Terminal {
		all = append(all, t.PTY)
	}
	return all
}

// Stream returns the next stream, which lasts so long.
func (s *Stage) Stream(rate float64, chunk int, lasts time.Duration) pattern.Spec {
	s.Streams++
	return pattern.Spec{
		Seed: s.Env.Options.Seed<<16 + uint64(s.Streams), Chunk: chunk, Rate: rate, Burst: 1,
		Start: time.Now().Add(Lead).Truncate(time.Microsecond), Chunks: max(1, int(rate*lasts.Seconds()+0.5)),
	}
}

// Print makes terminal i print a stream.
func (s *Stage) Print(ctx context.Context, i int, spec pattern.Spec) error {
	spec.Start = spec.Start.Add(s.Clock.Ahead())
	return s.Terminal[i].Order(ctx, spec.Order())
}

// Base returns the offset of each terminal's next byte.
func (s *Stage) Base() []uint64 {
	var all []uint64
	for _, t := range s.Terminal {
		all = append(all, t.Viewer.Position().Offset)
	}
	return all
}

// An audience says which viewers [stage.gather] starts.
type Audience struct {
	Each  int // of each terminal
	Skip  int // so many of the first terminals have none
	Spec  viewers.Spec
	Rate  float64 // messages per second that each gets, to choose the number of processes
	Extra int     // sockets of other groups
}

// Bring starts viewers, which record from now on, and waits until all have
// joined. phase is the name of that, if it has one.
func (s *Stage) Bring(ctx context.Context, a Audience, phase string) (*generator.Group, error) {
	g, err := s.Gather(ctx, a)
	if err == nil && phase != "" {
		err = g.Phase(ctx, phase, -1)
	}
	if err == nil {
		err = g.Begin(ctx, time.Now())
	}
	if err == nil {
		err = s.Join(ctx, g, a.Each*(len(s.Terminal)-a.Skip))
	}
	return g, err
}

// Gather starts generator processes for viewers, which do not join yet.
func (s *Stage) Gather(ctx context.Context, a Audience) (*generator.Group, error) {
	spec := a.Spec
	terminals := 1
	if spec.URL == "" {
		spec.Session, spec.Relays = s.Env.Target.Session, s.Env.Origins()
		spec.PTYs, spec.OwnGrants = s.ptys()[a.Skip:], s.Env.Options.OwnGrants
		terminals = len(spec.PTYs)
		people, err := s.Env.Watchers(a.Each * terminals)
		if err != nil {
			return nil, err
		}
		for _, u := range people {
			spec.Tokens = append(spec.Tokens, u.Token)
		}
	}
	total := a.Each * terminals
	processes := s.Env.Options.Generators
	if processes <= 0 {
		processes = generator.Processes(total, a.Rate)
	}
	processes = max(1, min(processes, a.Each))
	if err := generator.Fits(total+a.Extra, processes); err != nil {
		return nil, err
	}
	var specs []any
	for i := range processes {
		share := spec
		share.Viewers = a.Each*(i+1)/processes - a.Each*i/processes
		specs = append(specs, share)
	}
	return s.Env.Generators.Start(ctx, viewers.Kind, specs)
}

// Join makes a group's viewers join. It fails unless all are admitted.
func (s *Stage) Join(ctx context.Context, g *generator.Group, total int) error {
	within := JoinWait + time.Duration(total)*20*time.Millisecond
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
	s.Env.Progress("joining", float64(total), float64(total))
	return nil
}

// watchJoin shows the progress of a join until ctx ends.
func (s *Stage) watchJoin(ctx context.Context, g *generator.Group, total int) {
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
		s.Env.Progress("joining", float64(sum.Connected), float64(total))
	}
}

// Arm begins a check by a group.
func Arm(ctx context.Context, g *generator.Group, a viewers.Arm) error {
	_, err := g.Ask(ctx, viewers.OrderArm, a)
	return err
}

// Finish ends the check, at the latest when stragglers is over after end, and
// returns what all viewers got.
func Finish(ctx context.Context, g *generator.Group, end time.Time) (viewers.Tally, error) {
	return FinishBy(ctx, g, end.Add(stragglers))
}

func FinishBy(ctx context.Context, g *generator.Group, deadline time.Time) (viewers.Tally, error) {
	return generator.Sum[viewers.Tally](ctx, g, viewers.OrderFinish, viewers.Finish{Deadline: deadline, Settle: settle})
}

// Complain says at once what viewers didn't get. where begins the sentence.
func (e *Env) Complain(where string, t viewers.Tally) {
	if bad := t.Viewers - t.Clean; bad > 0 {
		e.Say("%s%d of %d viewers didn't get exactly what was printed: %d bytes lost, %d doubled, %d corrupt", where, bad, t.Viewers, t.Lost, t.Duplicate, t.Corrupt)
	}
}

// TellCost records the processor time of each of n things in a block, if that
// is known.
func (e *Env) TellCost(figure string, block int, used func() (time.Duration, bool), n int64) {
	if cpu, ok := used(); ok && n > 0 {
		e.Out.BlockAt(figure, block, cpu.Seconds()/float64(n))
	}
}

// Streams returns the streams of a check of one terminal.
func Streams(spec ...pattern.Spec) []pattern.Spec { return spec }

// EndOf returns when the last chunk of all streams is due.
func EndOf(streams ...pattern.Spec) time.Time {
	var last time.Time
	for _, s := range streams {
		if end, ok := s.End(); ok && end.After(last) {
			last = end
		}
	}
	return last
}

// RelayPIDs returns the relays' processes as they are now.
func (e *Env) RelayPIDs() []int {
	var pids []int
	for _, r := range e.Now().Relays {
		if r.PID != 0 {
			pids = append(pids, r.PID)
		}
	}
	return pids
}

// Received is the metric that progress and plots show of output.
var Received = measure.Metric{Name: "received_bytes", Kind: measure.KindCounter, Unit: "B", Help: "output that came, at all viewers together"}

// Exactness are the metrics of every scenario whose viewers must get every byte.
var Exactness = []measure.Metric{
	{Name: "lost_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that the source wrote and a viewer didn't get, announced or not", Headline: true, LowerIsBetter: true, MustBeZero: true},
	{Name: "duplicate_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that a viewer got twice", LowerIsBetter: true, MustBeZero: true},
	{Name: "corrupt_streams", Kind: measure.KindCounter, Help: "streams of a viewer whose bytes or SHA-256 are not the source's", LowerIsBetter: true, MustBeZero: true},
}

// ExactEcho are the metrics of every scenario in which a typist gets every key
// back.
var ExactEcho = []measure.Metric{
	{Name: "lost_keys", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "keystrokes whose echo wasn't back after 10 s"},
	{Name: "garbled_keys", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "bytes that came and weren't the next key"},
}
