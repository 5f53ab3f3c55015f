package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/deploy/e2e"
)

const (
	// benchSecrets is how many secrets one of the two sandboxes has to mask, in
	// all encodings.
	benchSecrets = 10_000
	// secretsEach is how many one env.apply sets: a signed command has a size.
	secretsEach = 200
	// redactDelay bounds what masking adds to a keystroke's echo, p99, in
	// milliseconds.
	redactDelay = 20
)

// measureRedaction times keystrokes in a sandbox that knows 10,000 secrets beside
// one that knows none.
func measureRedaction(ctx context.Context, bin string) ([]*figure, error) {
	var conns []*websocket.Conn
	for i := range 2 {
		stack, stop, err := startStack(bin)
		if err != nil {
			return nil, err
		}
		defer stop()
		if i == 1 {
			if err := setSecrets(ctx, stack); err != nil {
				return nil, err
			}
		}
		conn, err := attachEcho(ctx, stack)
		if err != nil {
			return nil, err
		}
		defer conn.CloseNow()
		if err := awaitReady(ctx, conn); err != nil {
			return nil, err
		}
		if _, err := echoes(ctx, conn); err != nil { // warm up
			return nil, err
		}
		conns = append(conns, conn)
	}
	delay := &figure{name: "echo's delay by 10,000 secrets, p99", bound: redactDelay, unit: "ms"}
	for n := 0; n < blocks || n < maxBlocks && !delay.decided(); n++ {
		without, err := echoes(ctx, conns[0])
		if err != nil {
			return nil, err
		}
		with, err := echoes(ctx, conns[1])
		if err != nil {
			return nil, err
		}
		a, b := percentile(without, 99), percentile(with, 99)
		delay.add(float64(b-a) / float64(time.Millisecond))
		fmt.Fprintf(os.Stderr, "redaction block %d: without p50 %v p99 %v, with p50 %v p99 %v\n",
			n+1, percentile(without, 50), a, percentile(with, 50), b)
	}
	return []*figure{delay}, nil
}

// setSecrets gives a session benchSecrets random secrets.
func setSecrets(ctx context.Context, stack *e2e.Stack) error {
	alice := stack.Ready.User("alice")
	grant, err := alice.Grant(ctx, stack.Ready.SessionID)
	if err != nil {
		return err
	}
	began := time.Now()
	for n := 0; n < benchSecrets; {
		secrets := map[string]any{}
		for range secretsEach {
			secrets[fmt.Sprintf("S%d", n)] = map[string]any{"value": "sk-" + rand.Text()}
			n++
		}
		status, body, err := e2e.Call(ctx, http.MethodPost, fmt.Sprintf("%s/sessions/%s/env", alice.Base, stack.Ready.SessionID), grant,
			map[string]any{"secrets": secrets})
		if err != nil {
			return err
		}
		if status != http.StatusOK {
			return fmt.Errorf("env: status %d: %s", status, body)
		}
	}
	fmt.Fprintf(os.Stderr, "%d secrets set in %v\n", benchSecrets, time.Since(began).Round(time.Millisecond))
	return nil
}
