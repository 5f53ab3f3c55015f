package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// commandClients is how many clients BenchmarkCommands has.
const commandClients = 100

// A commander posts commands that the control plane's key has signed to the
// relay's intake. Who has no more than a user can't leave the control plane out.
type commander struct {
	stack  *Stack
	signer *jws.Signer
	client *http.Client
}

func newCommander(b *testing.B) *commander {
	b.Helper()
	s := own(b)
	signer, err := s.Signer()
	must(b, err)
	return &commander{s, signer, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: commandClients}}}
}

// sign returns a command that does nothing: a session that nobody uses.
func (c *commander) sign() (protocol.CommandEnvelope, error) {
	return c.signOp(protocol.CommandTarget{SessionID: protocol.NewSessionID()}, `{"kind":"session.create"}`)
}

// signOp returns a command for a target in the first sandbox.
func (c *commander) signOp(target protocol.CommandTarget, op string) (protocol.CommandEnvelope, error) {
	target.SandboxID = c.stack.Ready.Sandboxes[0].ID
	cmd := jws.Command{
		Audience: jws.AudienceAgent, CommandID: protocol.NewCommandID(), TraceID: protocol.NewTraceID(),
		IssuedAt: time.Now().UnixMilli(), TTLMs: protocol.DefaultCommandTTL.Milliseconds(),
		Target: target, Op: json.RawMessage(op),
	}
	token, err := c.signer.SignCommand(cmd)
	return envelope(cmd, token), err
}

// post sends a command and waits for its result, which must be ok.
func (c *commander) post(ctx context.Context, env protocol.CommandEnvelope) error {
	status, callback, err := c.stack.Post(ctx, c.client, env)
	if err == nil && (status != http.StatusOK || callback.Status != protocol.StatusOK) {
		err = fmt.Errorf("command: status %d: %+v %v", status, callback, callback.Error)
	}
	return err
}

// BenchmarkCommand: from the relay's intake to the result, beside the fsync on
// the same disk that each command has to wait for. Less 2 ms for two programs, a
// tunnel and two signatures, the median is to be three fsyncs at most.
func BenchmarkCommand(b *testing.B) {
	c := newCommander(b)
	disk, err := os.CreateTemp(filepath.Join(c.stack.Ready.Sandboxes[0].StateDir, "ledger"), "bench-*")
	must(b, err)
	defer disk.Close()
	var commands, syncs []time.Duration
	for b.Loop() {
		env, err := c.sign()
		must(b, err)
		timed(b, &commands, func() error { return c.post(b.Context(), env) })
		timed(b, &syncs, func() error {
			if _, err := disk.Write(make([]byte, 512)); err != nil {
				return err
			}
			return disk.Sync()
		})
	}
	command, sync := quantile(commands, 0.5), quantile(syncs, 0.5)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(millis(command), "p50-ms")
	b.ReportMetric(millis(sync), "fsync-p50-ms")
	b.ReportMetric(float64(max(0, command-2*time.Millisecond))/float64(sync), "fsyncs-beyond-2ms")
}

// BenchmarkCommands: as many as a hundred clients get done, each one after the
// other. That is to be 1,000 a second at least.
func BenchmarkCommands(b *testing.B) {
	c := newCommander(b)
	envelopes := make([]protocol.CommandEnvelope, b.N)
	for i := range envelopes {
		var err error
		envelopes[i], err = c.sign()
		must(b, err)
	}
	b.SetParallelism((commandClients + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	var next atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := c.post(b.Context(), envelopes[next.Add(1)-1]); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}

// BenchmarkSignals: signals to a terminal's job beside commands that do nothing, one
// after the other and in turns, while 300 other processes are on the machine. A signal
// is to take no more than a quarter longer, however many those are.
func BenchmarkSignals(b *testing.B) {
	const others = 300
	c := newCommander(b)
	for range others {
		cmd := exec.Command("sleep", "3600")
		must(b, cmd.Start())
		b.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	terminal := protocol.CommandTarget{SessionID: c.stack.Ready.SessionID, PTYID: c.stack.Ready.PTYID}
	var nothing, signals []time.Duration
	for b.Loop() {
		env, err := c.sign()
		must(b, err)
		timed(b, &nothing, func() error { return c.post(b.Context(), env) })
		env, err = c.signOp(terminal, `{"kind":"pty.signal","signal":"WINCH"}`)
		must(b, err)
		timed(b, &signals, func() error { return c.post(b.Context(), env) })
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(millis(quantile(signals, 0.5)), "signal-p50-ms")
	b.ReportMetric(millis(quantile(nothing, 0.5)), "nothing-p50-ms")
	b.ReportMetric(sum(nothing).Seconds()/sum(signals).Seconds(), "of-nothings-rate")
}

func sum(all []time.Duration) (total time.Duration) {
	for _, d := range all {
		total += d
	}
	return total
}
