package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/deploy/e2e"
	"github.com/fairlead/fairlead/protocol"
)

// ticker prints a character every 5 ms.
const ticker = `exec perl -e '$| = 1; use Time::HiRes qw(sleep); while (1) { print "."; sleep 0.005 }'`

// A failoverCase is one way to lose a relay.
type failoverCase struct {
	name     string
	relays   int
	p50, p99 time.Duration // wanted; 0: no bound
}

var (
	restartCase = failoverCase{"relay restarted", 1, 2 * time.Second, 0}
	standbyCase = failoverCase{"warm standby", 2, 500 * time.Millisecond, time.Second}
)

// measureFailover kills a viewer's relay again and again and times, from each
// kill to the first live byte, a viewer that comes back by itself.
func measureFailover(ctx context.Context, bin string, c failoverCase, kills int) ([]*figure, error) {
	stack, stop, err := startStack(bin, "--relays", fmt.Sprint(c.relays))
	if err != nil {
		return nil, err
	}
	defer stop()
	alice := stack.Ready.User("alice")
	id, err := stack.NewPTY(ctx, alice, ticker)
	if err != nil {
		return nil, err
	}
	grant, err := alice.Grant(ctx, stack.Ready.SessionID)
	if err != nil {
		return nil, err
	}
	f := &follower{stack: stack, user: alice, grant: grant, pty: id}
	if err := f.reattach(ctx); err != nil {
		return nil, err
	}
	defer func() { f.conn.CloseNow() }()
	var times []time.Duration
	for i := range kills {
		// Everything has settled: the killed relay is back, a standby is warm.
		settled := time.Now().Add(1500*time.Millisecond + rand.N(500*time.Millisecond))
		for time.Now().Before(settled) {
			if err := f.read(ctx); err != nil {
				return nil, fmt.Errorf("between two kills: %w", err)
			}
		}
		if err := stack.Reload(5 * time.Second); err != nil {
			return nil, err
		}
		killed := time.Now()
		if err := syscall.Kill(stack.Ready.Relays[f.relay].PID, syscall.SIGKILL); err != nil {
			return nil, err
		}
		if err := f.drain(ctx); err != nil {
			return nil, err
		}
		if err := f.reattach(ctx); err != nil {
			return nil, err
		}
		took := time.Since(killed)
		times = append(times, took)
		fmt.Fprintf(os.Stderr, "%s: kill %d: %v\n", c.name, i+1, took.Round(time.Millisecond))
	}
	p50, p99 := percentile(times, 50), percentile(times, 99)
	figures := []*figure{{name: c.name + ", first live byte p50", unit: "ms", bound: ms(c.p50), ratios: []float64{ms(p50)}}}
	if c.p99 > 0 {
		figures = append(figures, &figure{name: c.name + ", first live byte p99", unit: "ms", bound: ms(c.p99), ratios: []float64{ms(p99)}})
	}
	return figures, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// A follower is a viewer that comes back, at any relay.
type follower struct {
	stack *e2e.Stack
	user  e2e.User
	grant string
	pty   protocol.PTYID

	relay int // where it is
	conn  *websocket.Conn
	epoch string
	next  uint64 // offset of the next byte
}

// retryEvery is the pause between two attempts to come back.
const retryEvery = 10 * time.Millisecond

// reattach tries one relay after the other until a byte of output has come.
func (f *follower) reattach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		if last = f.attempt(ctx); last == nil {
			return nil
		}
		f.relay = (f.relay + 1) % len(f.stack.Ready.Relays)
		time.Sleep(retryEvery)
	}
	return fmt.Errorf("no way back: %w", last)
}

func (f *follower) attempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	user := f.user
	user.Base = f.stack.Ready.Relays[f.relay].URL
	ticket, err := user.Ticket(ctx, f.grant, f.stack.Ready.SessionID, f.pty)
	if err != nil {
		return err
	}
	if f.epoch != "" {
		ticket.URL += fmt.Sprintf("?since=%s:%d", f.epoch, f.next)
	}
	conn, err := e2e.DialRaw(ctx, ticket, user.Base)
	if err != nil {
		return err
	}
	old := f.conn
	f.conn = conn
	if old != nil {
		old.CloseNow()
	}
	for began := f.next; f.next == began || f.epoch == ""; {
		if err := f.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drain reads what is under way until the socket ends.
func (f *follower) drain(ctx context.Context) error {
	for {
		if err := f.read(ctx); err != nil {
			return ctx.Err()
		}
	}
}

// read takes one frame.
func (f *follower) read(ctx context.Context) error {
	kind, data, err := f.conn.Read(ctx)
	if err != nil {
		return err
	}
	if kind == websocket.MessageBinary {
		f.next += uint64(len(data))
		return nil
	}
	if !bytes.Contains(data, []byte(`"attached"`)) {
		return nil
	}
	var m struct {
		Type     string `json:"type"`
		Epoch    string `json:"epoch"`
		Offset   uint64 `json:"offset"`
		Mode     string `json:"mode"`
		Keyframe int    `json:"keyframe_bytes"`
	}
	if err := json.Unmarshal(data, &m); err != nil || m.Type != "attached" {
		return err
	}
	if f.epoch != "" && m.Mode != protocol.ModeResume {
		return errors.New("resumed with mode " + m.Mode)
	}
	f.epoch, f.next = m.Epoch, m.Offset
	if m.Keyframe > 0 { // whose bytes count for no offset
		f.next -= uint64(m.Keyframe)
	}
	return nil
}
