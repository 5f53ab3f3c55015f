// Package source is the program whose output load tests watch: it obeys orders
// that are typed into its terminal, and writes what they ask for when it is
// due.
//
// Orders are lines, ended by a carriage return or a line feed:
//
//	go SEED CHUNK RATE BURST START_MICROS CHUNKS
//	               write the stream of package pattern
//	flood SEED BYTES
//	               write a flood of package pattern, as fast as it is taken
//	replay FILE [TIMING]
//	               write a recorded terminal: an asciicast, or what script(1)
//	               wrote with its timing
//	clock          answer "clock MICROS", the time since 1970
//	lag            answer "lag COUNT P50 P99 MAX": by how many microseconds the
//	               chunks of the last go were written too late
//	echo           answer "echoing"; from then on write each byte as it comes,
//	               up to 0x04, then answer "ready"
//	keys           from now on count what is typed, and write nothing of it, up
//	               to 0x04; a go that is under way goes on
//	typed          answer "typed COUNT SHA256" of the last keys
//	stop           end what is under way
//	quit           end
//
// Nothing else is written but "ready" at the beginning, and "error …" for an
// order that can't be obeyed. Answers end in "\r\n". Orders are obeyed one after
// the other, but for keys, stop and quit, which don't wait.
package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

const (
	// maxLine bounds an order in bytes, and maxOrders how many may wait.
	maxLine   = 4096
	maxOrders = 64
	// endByte ends what is typed under echo and keys: ^D.
	endByte = 0x04
)

// A mode says what input is.
type mode int

const (
	modeOrders mode = iota
	modeEcho
	modeKeys
)

// A Machine obeys orders. What it writes goes to one writer, one Write at a
// time. A Machine that has nothing to do has no goroutine.
type Machine struct {
	// Static after construction.
	ctx     context.Context
	cancel  context.CancelFunc
	out     io.Writer
	precise bool           // wait with a system call, which takes a thread
	quit    func()         // nil: nobody wants to know
	runs    sync.WaitGroup // the goroutine that obeys, if there is one

	// Owned by Input.
	line []byte

	mu sync.Mutex
	// Guarded by mu.
	mode   mode
	orders []string           // that wait, at most maxOrders
	busy   bool               // somebody obeys them
	stop   context.CancelFunc // of the one under way; nil: none
	lags   lags               // of the last go
	typed  int64              // under the last keys
	sum    hash.Hash          // of that
}

// New returns a Machine that writes to out. It calls quit, unless that is nil,
// when the order to quit comes, from within Input. Close it when done.
func New(out io.Writer, quit func()) *Machine {
	ctx, cancel := context.WithCancel(context.Background())
	return &Machine{ctx: ctx, cancel: cancel, out: out, quit: quit}
}

// Ready says "ready", as the program does when it starts.
func (m *Machine) Ready() { m.answer("ready") }

// Close ends what is under way and waits until nothing is written any more.
// Input must not be called meanwhile or afterwards.
func (m *Machine) Close() {
	m.cancel()
	m.runs.Wait()
}

// Input takes what was typed. It is for one goroutine, and waits for nothing but
// the writing of an echo.
func (m *Machine) Input(p []byte) {
	for len(p) > 0 {
		switch m.current() {
		case modeEcho:
			p = m.echo(p)
		case modeKeys:
			p = m.keys(p)
		default:
			p = m.read(p)
		}
	}
}

func (m *Machine) current() mode {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mode
}

func (m *Machine) set(to mode) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mode = to
}

// untilEnd cuts p at the byte that ends a mode.
func untilEnd(p []byte) (body, rest []byte, ended bool) {
	if i := bytes.IndexByte(p, endByte); i >= 0 {
		return p[:i], p[i+1:], true
	}
	return p, nil, false
}

// echo writes p at once.
func (m *Machine) echo(p []byte) []byte {
	body, rest, ended := untilEnd(p)
	if len(body) > 0 {
		m.write(body)
	}
	if ended {
		m.set(modeOrders)
		m.Ready()
	}
	return rest
}

// keys counts p.
func (m *Machine) keys(p []byte) []byte {
	body, rest, ended := untilEnd(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.typed += int64(len(body))
	m.sum.Write(body)
	if ended {
		m.mode = modeOrders
	}
	return rest
}

// read takes one order from p, or a part of one.
func (m *Machine) read(p []byte) []byte {
	i := bytes.IndexAny(p, "\r\n")
	part, rest := p, []byte(nil)
	if i >= 0 {
		part, rest = p[:i], p[i+1:]
	}
	m.line = append(m.line, part[:min(len(part), maxLine-len(m.line))]...)
	if i < 0 {
		return nil
	}
	order := strings.TrimSpace(string(m.line))
	m.line = nil
	if order != "" {
		m.order(order)
	}
	return rest
}

// order obeys an order that doesn't wait, or has it obeyed in turn.
func (m *Machine) order(order string) {
	switch order {
	case "quit":
		m.cancel()
		if m.quit != nil {
			m.quit()
		}
		return
	case "stop":
		m.halt()
		return
	case "keys":
		m.mu.Lock()
		m.mode, m.typed, m.sum = modeKeys, 0, sha256.New()
		m.mu.Unlock()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ctx.Err() != nil, len(m.orders) == maxOrders:
	case m.busy:
		m.orders = append(m.orders, order)
	default:
		m.orders, m.busy = append(m.orders, order), true
		m.runs.Go(m.obeyAll) // Close waits for it
	}
}

// halt ends what is under way.
func (m *Machine) halt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.stop != nil:
		m.stop()
	case len(m.orders) > 0: // it is about to begin
		m.orders = m.orders[1:]
	}
}

// obeyAll obeys orders until there are none.
func (m *Machine) obeyAll() {
	for {
		m.mu.Lock()
		if len(m.orders) == 0 || m.ctx.Err() != nil {
			m.orders, m.busy = nil, false
			m.mu.Unlock()
			return
		}
		order := m.orders[0]
		m.orders = m.orders[1:]
		ctx, cancel := context.WithCancel(m.ctx)
		m.stop = cancel
		m.mu.Unlock()
		if err := m.obey(ctx, order); err != nil && ctx.Err() == nil {
			m.answer("error " + err.Error())
		}
		cancel()
		m.mu.Lock()
		m.stop = nil
		m.mu.Unlock()
	}
}

// obey does what one order asks for.
func (m *Machine) obey(ctx context.Context, order string) error {
	fields := strings.Fields(order)
	switch fields[0] {
	case "go":
		s, err := pattern.ParseOrder(order)
		if err != nil {
			return err
		}
		return m.stream(ctx, s)
	case "flood":
		f, err := pattern.ParseFlood(order)
		if err != nil {
			return err
		}
		return m.flood(ctx, f)
	case "replay":
		if len(fields) < 2 || len(fields) > 3 {
			return fmt.Errorf("want: replay FILE [TIMING]")
		}
		return m.replay(ctx, fields[1:])
	case "echo":
		m.set(modeEcho)
		m.answer("echoing")
	case "clock":
		m.answer(fmt.Sprintf("clock %d", time.Now().UnixMicro()))
	case "lag":
		m.mu.Lock()
		l := m.lags
		m.mu.Unlock()
		m.answer("lag " + l.String())
	case "typed":
		m.mu.Lock()
		n, sum := m.typed, sha256.Sum256(nil)
		if m.sum != nil {
			m.sum.Sum(sum[:0])
		}
		m.mu.Unlock()
		m.answer(fmt.Sprintf("typed %d %x", n, sum))
	default:
		return fmt.Errorf("unknown order %.20q", fields[0])
	}
	return nil
}

func (m *Machine) answer(text string) { m.write([]byte(text + "\r\n")) }

// write writes p. A terminal that is gone is noticed by whoever reads it.
func (m *Machine) write(p []byte) { m.out.Write(p) } //nolint:errcheck // see above
