package scenario

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
)

var failover = &stage.Scenario{
	Name:    "failover",
	Summary: "relays that are killed while a terminal prints",
	Long: `While a program in a real terminal prints, viewers check every byte and somebody
types, a relay is killed at a random moment and started again. Each viewer comes
back by itself, with its position, as a browser does. What the typist typed must
reach the program once, in order.

Without --local, --kill-command says how to kill a relay that comes back by
itself.`,
	Example: `  loadtest run failover --local --kills 20 --slo 'lost_bytes==0'
  loadtest run failover --local --relays 2 --slo 'resume_p50<=500ms' --slo 'resume_p99<=1s'
  loadtest run failover --target stage.json --kill-command 'fly machine kill 148e21e2'`,
	Metrics: append([]measure.Metric{
		stage.Received,
		{Name: "resume", Kind: measure.KindLatency, Help: "from the kill of a relay to a viewer's next output, of those who were on it", Headline: true},
		{Name: "keystroke", Kind: measure.KindLatency, Help: "from when a key was due to the word that it was written to the terminal, kills included", Headline: true},
		{Name: "lost_keys", Kind: measure.KindCounter, Help: "keystrokes that didn't reach the program", LowerIsBetter: true, MustBeZero: true},
		{Name: "doubled_keys", Kind: measure.KindCounter, Help: "keystrokes that reached the program more than once", LowerIsBetter: true, MustBeZero: true},
		{Name: "scrambled_keys", Kind: measure.KindCounter, Help: "kills after which the keystrokes arrived in another order", LowerIsBetter: true, MustBeZero: true},
		{Name: "not_resumed", Kind: measure.KindCounter, Help: "viewers that had no output again 15 s after a kill", LowerIsBetter: true, MustBeZero: true},
		{Name: "kills", Unit: "kills", Help: "relays that were killed"},
		{Name: "relay_restart", Unit: "s", Help: "from the kill to the relay's being ready again, with --local", LowerIsBetter: true},
		{Name: "delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "from when a chunk was due to its arrival at a viewer, kills included"},
		{Name: "join", Kind: measure.KindLatency, Help: "from the request for a ticket to the whole screen"},
	}, stage.Exactness...),
	Defaults: stage.Options{Viewers: 50, Rate: 400, Chunk: 256, Duration: 3 * time.Second, Seed: 1},
	Flags: stage.Own(func(c *program.Command, own *failoverOptions) {
		c.Int(&own.Kills, "kills", 5, "`number` of kills")
		c.String(&own.Command, "kill-command", "", "`command` for sh that kills a relay, without --local")
	}),
	Prepare: func(o *stage.Options) error {
		if n := o.Own.(*failoverOptions).Kills; n < 1 {
			return fmt.Errorf("--kills %d must be more than 0", n)
		}
		return nil
	},
	Run: runFailover,
}

type failoverOptions struct {
	Kills   int
	Command string
}

const (
	// resumeWait bounds how long a viewer may be without output.
	resumeWait = 15 * time.Second
	// keyEvery is the typist's pace.
	keyEvery = 25 * time.Millisecond
	// endOfKeys ends the keys that the source counts.
	endOfKeys = "\x04"
)

func runFailover(ctx context.Context, env *stage.Env) error {
	own := env.Options.Own.(*failoverOptions)
	if env.Local == nil && own.Command == "" {
		return errors.New("failover: --kill-command is needed to kill a relay that isn't ours")
	}
	s, err := stage.NewStage(ctx, env, 1)
	if err != nil {
		return err
	}
	defer s.Close()
	f := &failing{Stage: s, own: own, random: rand.New(rand.NewPCG(env.Options.Seed, 0xfa11)), rec: measure.NewRecorder()}
	f.rec.Begin(time.Now())
	if f.group, err = s.Bring(ctx, stage.Audience{Each: env.Options.Viewers, Rate: env.Options.Rate}, "join"); err != nil {
		return err
	}
	for i := range own.Kills {
		env.Progress("kills", float64(i), float64(own.Kills))
		if err := f.round(ctx, i); err != nil {
			return fmt.Errorf("kill %d: %w", i+1, err)
		}
	}
	if f.affected == 0 {
		return errors.New("no viewer lost its socket by any kill, so nothing was tried")
	}
	if f.unseen > 0 {
		env.Out.Note(fmt.Sprintf("%d of %d kills hit a relay through which nobody watched", f.unseen, own.Kills))
	}
	env.Progress("kills", float64(own.Kills), float64(own.Kills))
	env.Out.Value("kills", float64(own.Kills))
	return s.Clock.Settle(ctx)
}

// failing is the scenario's state.
type failing struct {
	*stage.Stage
	own    *failoverOptions
	group  *generator.Group
	random *rand.Rand
	rec    *measure.Recorder // of the typist

	affected int // viewers that lost their socket by a kill, counted at each
	unseen   int // kills by which none did
}

// round prints a stream, kills a relay at a random moment of it, and records
// the outcome.
func (f *failing) round(ctx context.Context, n int) error {
	o := f.Env.Options
	if err := f.group.Phase(ctx, "failover", n); err != nil {
		return err
	}
	spec := f.Stream(o.Rate, o.Chunk, o.Duration)
	if err := stage.Arm(ctx, f.group, viewers.Arm{Streams: stage.Streams(spec)}); err != nil {
		return err
	}
	if err := f.Print(ctx, 0, spec); err != nil {
		return err
	}
	if err := f.Terminal[0].Order(ctx, "keys"); err != nil {
		return err
	}
	typing := f.startTyping(ctx)
	killed, back, err := f.kill(ctx, spec.Start.Add(time.Duration(f.random.Float64()*float64(o.Duration))))
	if err == nil {
		err = f.awaitResumed(ctx, killed)
	}
	if err == nil {
		err = back(ctx)
	}
	typed, failed := typing()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if err := f.conclude(ctx, n, stage.EndOf(spec)); err != nil {
		return err
	}
	return f.verifyKeys(ctx, typed)
}

// kill kills a relay at that moment.
func (f *failing) kill(ctx context.Context, at time.Time) (killed time.Time, back func(context.Context) error, err error) {
	if err := pause.Until(ctx, at); err != nil {
		return killed, nil, err
	}
	if f.Env.Local == nil || f.own.Command != "" {
		killed = time.Now()
		f.Env.Out.Event(killed, "relay killed")
		out, err := exec.CommandContext(ctx, "sh", "-c", f.own.Command).CombinedOutput()
		if err != nil {
			return killed, nil, fmt.Errorf("--kill-command: %w: %s", err, out)
		}
		return killed, func(context.Context) error { return nil }, nil
	}
	victim := f.random.IntN(len(f.Env.Target.Relays))
	killed, ready, err := f.Env.Local.Kill(victim)
	if err != nil {
		return killed, nil, err
	}
	f.Env.Out.Event(killed, fmt.Sprintf("relay %d killed", victim+1))
	restarted := make(chan error, 1)
	go func() { // back receives; ends by itself after 30 s at most
		err := ready(ctx)
		if err == nil {
			f.Env.Out.Block("relay_restart", time.Since(killed).Seconds())
		}
		restarted <- err
	}()
	return killed, func(context.Context) error { return <-restarted }, nil
}

// awaitResumed waits until all viewers of the killed relay have output again.
func (f *failing) awaitResumed(ctx context.Context, killed time.Time) error {
	sum, err := generator.Sum[viewers.Resumed](ctx, f.group, viewers.OrderResume, viewers.Resume{At: killed, Within: resumeWait})
	if err != nil {
		return err
	}
	f.affected += sum.Affected
	if sum.Affected == 0 {
		f.unseen++
	}
	f.rec.Counter("not_resumed").Add(int64(sum.Affected - sum.Back))
	if sum.Back < sum.Affected {
		f.Env.Say("%d of %d viewers had no output again %v after the kill", sum.Affected-sum.Back, sum.Affected, resumeWait)
	}
	return nil
}

// conclude ends the check of the stream.
func (f *failing) conclude(ctx context.Context, n int, end time.Time) error {
	if now := time.Now(); now.After(end) {
		end = now // what was held up by the kill has its time
	}
	tally, err := stage.Finish(ctx, f.group, end)
	f.Env.Complain(fmt.Sprintf("kill %d: ", n+1), tally)
	return err
}

// startTyping types keys at a fixed pace until the returned function is called,
// which returns what was typed.
func (f *failing) startTyping(ctx context.Context) func() (string, error) {
	const alphabet = "abcdefghijklmnopqrstuvwxyz"
	until, stop := context.WithCancel(ctx)
	var typed strings.Builder
	var failed error
	var typing sync.WaitGroup
	latency := f.rec.Latency("keystroke")
	typing.Go(func() {
		due := time.Now()
		for i := 0; pause.Until(until, due) == nil; i++ {
			key, when := alphabet[i%len(alphabet):i%len(alphabet)+1], due
			waiting, cancel := context.WithTimeout(ctx, resumeWait)
			failed = f.Terminal[0].Viewer.Type(waiting, key, func(at time.Time) { latency.Record(when, at) })
			cancel()
			if failed != nil {
				return
			}
			typed.WriteString(key)
			due = due.Add(keyEvery)
		}
	})
	return func() (string, error) {
		stop()
		typing.Wait()
		return typed.String(), failed
	}
}

// verifyKeys asks the program which keys it got.
func (f *failing) verifyKeys(ctx context.Context, typed string) error {
	t := f.Terminal[0]
	if err := t.Order(ctx, endOfKeys+"clock"); err != nil { // the line is an order again
		return err
	}
	answer, err := t.Ask(ctx, "typed", "typed ")
	if err != nil {
		return err
	}
	number, sum, _ := strings.Cut(answer, " ")
	count, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("the source says it was typed %q", answer)
	}
	f.rec.Counter("lost_keys").Add(int64(max(0, len(typed)-count)))
	f.rec.Counter("doubled_keys").Add(int64(max(0, count-len(typed))))
	scrambled := int64(0)
	if want := sha256.Sum256([]byte(typed)); count == len(typed) && sum != hex.EncodeToString(want[:]) {
		scrambled = 1
	}
	f.rec.Counter("scrambled_keys").Add(scrambled)
	f.Env.Out.Merge("failover", -1, f.rec.Snapshot())
	return nil
}
