package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/deploy/e2e"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// keystrokes are typed in each block of each side.
	keystrokes = 1000
	// echoBound is how much slower than the direct socket an echo may be,
	// at the median and at the 99th percentile.
	echoBound = 3.0
)

// measureEcho times keystrokes through the stack beside the direct PTY.
func measureEcho(ctx context.Context, stack *e2e.Stack, base *baseline) ([]*figure, error) {
	direct, _, err := websocket.Dial(ctx, strings.Replace(base.url, "http", "ws", 1)+"/pty", nil)
	if err != nil {
		return nil, err
	}
	defer direct.CloseNow()
	shared, err := attachEcho(ctx, stack)
	if err != nil {
		return nil, err
	}
	defer shared.CloseNow()
	for _, conn := range []*websocket.Conn{direct, shared} {
		if err := awaitReady(ctx, conn); err != nil {
			return nil, err
		}
		if _, err := echoes(ctx, conn); err != nil { // warm up
			return nil, err
		}
	}
	p50 := &figure{name: "keystroke echo p50", bound: echoBound}
	p99 := &figure{name: "keystroke echo p99", bound: echoBound}
	for i := 0; i < blocks || i < maxBlocks && !(p50.decided() && p99.decided()); i++ {
		a, err := echoes(ctx, direct)
		if err != nil {
			return nil, err
		}
		b, err := echoes(ctx, shared)
		if err != nil {
			return nil, err
		}
		a50, a99, b50, b99 := percentile(a, 50), percentile(a, 99), percentile(b, 50), percentile(b, 99)
		p50.add(float64(b50) / float64(a50))
		p99.add(float64(b99) / float64(a99))
		fmt.Fprintf(os.Stderr, "echo block %d: direct p50 %v p99 %v, fairlead p50 %v p99 %v\n", i+1, a50, a99, b50, b99)
	}
	return []*figure{p50, p99}, nil
}

// attachEcho opens a terminal that echoes raw bytes.
func attachEcho(ctx context.Context, stack *e2e.Stack) (*websocket.Conn, error) {
	alice := stack.Ready.User("alice")
	id, err := stack.NewPTY(ctx, alice, rawCat)
	if err != nil {
		return nil, err
	}
	return attach(ctx, stack, alice, id)
}

// attach opens a socket that the benchmark reads itself.
func attach(ctx context.Context, stack *e2e.Stack, user e2e.User, id protocol.PTYID) (*websocket.Conn, error) {
	grant, err := user.Grant(ctx, stack.Ready.SessionID)
	if err != nil {
		return nil, err
	}
	ticket, err := user.Ticket(ctx, grant, stack.Ready.SessionID, id)
	if err != nil {
		return nil, err
	}
	return e2e.DialRaw(ctx, ticket, user.Base)
}

func awaitReady(ctx context.Context, conn *websocket.Conn) error {
	var seen []byte
	for !bytes.Contains(seen, []byte("ready")) {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			seen = append(seen, data...)
		}
	}
	return nil
}

// echoes types one key after the other and times each until it is back.
func echoes(ctx context.Context, conn *websocket.Conn) ([]time.Duration, error) {
	times := make([]time.Duration, 0, keystrokes)
	for i := range keystrokes {
		key := []byte{'a' + byte(i%26)}
		began := time.Now()
		if err := conn.Write(ctx, websocket.MessageBinary, key); err != nil {
			return nil, err
		}
		for back := false; !back; {
			kind, data, err := conn.Read(ctx)
			if err != nil {
				return nil, err
			}
			if kind == websocket.MessageBinary {
				back = bytes.Contains(data, key)
			}
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}
