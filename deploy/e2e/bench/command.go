package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/e2e"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// commandRounds is how many commands, and as many fsyncs, a block times one
	// after the other.
	commandRounds = 60
	// commandClients is how many clients post at once, each commandsEach
	// commands.
	commandClients = 100
	commandsEach   = 20
	// fsyncBytes is what the baseline appends before each fsync.
	fsyncBytes = 512
	// commandAllowance is what a command may take beside its fsync: two
	// programs, a tunnel and two signatures.
	commandAllowance = 2 * time.Millisecond
)

// measureCommands times commands that do nothing, from the relay's intake to
// the result, beside the fsync that each of them has to wait for.
func measureCommands(ctx context.Context, bin string) ([]*figure, error) {
	stack, stop, err := startStack(bin)
	if err != nil {
		return nil, err
	}
	defer stop()
	c, err := newCommander(stack)
	if err != nil {
		return nil, err
	}
	defer os.Remove(c.disk.Name())
	defer c.disk.Close()
	latency := &figure{name: "command beyond 2 ms, in fsyncs, p50", bound: 3}
	rate := &figure{name: "commands from 100 clients", bound: 1000, atLeast: true, unit: "/s"}
	for n := 0; n < blocks || n < maxBlocks && !(latency.decided() && rate.decided()); n++ {
		one, sync, err := c.alone(ctx)
		if err != nil {
			return nil, err
		}
		latency.add(max(0, float64(one-commandAllowance)) / float64(sync))
		together, err := c.together(ctx)
		if err != nil {
			return nil, err
		}
		rate.add(together)
		fmt.Fprintf(os.Stderr, "commands: alone %v, fsync %v, %.0f/s from %d clients\n",
			one.Round(time.Microsecond), sync.Round(time.Microsecond), together, commandClients)
	}
	return []*figure{latency, rate}, nil
}

// A commander posts signed commands to a relay.
type commander struct {
	stack  *e2e.Stack
	signer *jws.Signer
	client *http.Client
	disk   *os.File // beside the agent's ledger
}

func newCommander(stack *e2e.Stack) (*commander, error) {
	signer, err := stack.Signer()
	if err != nil {
		return nil, err
	}
	disk, err := os.CreateTemp(filepath.Join(stack.Ready.Sandboxes[0].StateDir, "ledger"), "bench-*")
	if err != nil {
		return nil, err
	}
	return &commander{stack, signer, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: commandClients}}, disk}, nil
}

// alone returns the medians of commands and of fsyncs, in turn.
func (c *commander) alone(ctx context.Context) (command, sync time.Duration, err error) {
	envelopes, err := c.sign(commandRounds)
	if err != nil {
		return 0, 0, err
	}
	var commands, syncs []time.Duration
	for _, env := range envelopes {
		began := time.Now()
		if err := c.post(ctx, env); err != nil {
			return 0, 0, err
		}
		commands = append(commands, time.Since(began))
		began = time.Now()
		if _, err := c.disk.Write(make([]byte, fsyncBytes)); err != nil {
			return 0, 0, err
		}
		if err := c.disk.Sync(); err != nil {
			return 0, 0, err
		}
		syncs = append(syncs, time.Since(began))
	}
	return percentile(commands, 50), percentile(syncs, 50), nil
}

// together returns how many commands a second many clients get done.
func (c *commander) together(ctx context.Context) (perSecond float64, err error) {
	envelopes, err := c.sign(commandClients * commandsEach)
	if err != nil {
		return 0, err
	}
	failed := make(chan error, commandClients)
	var posting sync.WaitGroup
	began := time.Now()
	for mine := range slices.Chunk(envelopes, commandsEach) {
		posting.Go(func() {
			for _, env := range mine {
				if err := c.post(ctx, env); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	posting.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		return 0, err
	default:
		return float64(len(envelopes)) / took.Seconds(), nil
	}
}

// sign returns n commands that do nothing: sessions that nobody uses.
func (c *commander) sign(n int) ([]protocol.CommandEnvelope, error) {
	envelopes := make([]protocol.CommandEnvelope, n)
	for i := range envelopes {
		cmd := jws.Command{
			Audience: jws.AudienceAgent, CommandID: protocol.NewCommandID(), TraceID: protocol.NewTraceID(),
			IssuedAt: time.Now().UnixMilli(), TTLMs: protocol.DefaultCommandTTL.Milliseconds(),
			Target: protocol.CommandTarget{SandboxID: c.stack.Ready.Sandboxes[0].ID, SessionID: protocol.NewSessionID()},
			Op:     json.RawMessage(`{"kind":"session.create"}`),
		}
		token, err := c.signer.SignCommand(cmd)
		if err != nil {
			return nil, err
		}
		envelopes[i] = protocol.CommandEnvelope{
			Type: protocol.EnvelopeType, CommandID: cmd.CommandID, TraceID: cmd.TraceID, IssuedAt: cmd.IssuedAt,
			TTLMs: cmd.TTLMs, Target: cmd.Target, JWS: token,
		}
	}
	return envelopes, nil
}

// post sends one command and waits for its result, which must be ok.
func (c *commander) post(ctx context.Context, env protocol.CommandEnvelope) error {
	status, callback, err := c.stack.Post(ctx, c.client, env)
	if err == nil && (status != http.StatusOK || callback.Status != protocol.StatusOK) {
		err = fmt.Errorf("command: status %d: %+v %v", status, callback, callback.Error)
	}
	return err
}
