package generator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

const (
	// snapshotEvery is how often a child tells what it has measured.
	snapshotEvery = time.Second
	// lagEvery is how often a child looks how late it is. It shares no divisor
	// with usual rates, so that it doesn't look only when nothing is to do.
	lagEvery = 23 * time.Millisecond
)

// A server is the child's side.
type server struct {
	// Static after construction.
	rec    *measure.Recorder
	worker Worker
	orders sync.WaitGroup // under way

	// Guarded by mu: one line at a time, and a snapshot belongs to one phase.
	mu    sync.Mutex
	out   *json.Encoder
	phase string
	block int
}

// Serve is a generator process: it does what the lines of in say until in or
// ctx ends, and writes what comes of it to out.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{rec: measure.NewRecorder(), out: json.NewEncoder(out)}
	lines := bufio.NewReaderSize(in, 64<<10)
	if err := s.begin(ctx, lines); err != nil {
		return errors.Join(err, s.write(message{Fatal: err.Error()}))
	}
	defer s.worker.Close()
	defer s.orders.Wait()
	defer cancel()
	var ticking sync.WaitGroup
	defer ticking.Wait()
	defer cancel()
	ticking.Go(func() { s.tick(ctx) })
	ticking.Go(func() { s.watchLag(ctx) })
	if err := s.write(message{Ready: true}); err != nil {
		return err
	}
	return s.read(ctx, lines)
}

// begin makes the worker that the first line asks for.
func (s *server) begin(ctx context.Context, lines *bufio.Reader) error {
	var first hello
	if err := readLine(lines, &first); err != nil {
		return fmt.Errorf("first line of a generator: %w", err)
	}
	kind, err := find(first.Kind)
	if err != nil {
		return err
	}
	s.rec.Process(first.Name)
	raiseDescriptors()
	s.worker, err = kind(ctx, &Job{Spec: first.Spec, Index: first.Index, Of: first.Of, Rec: s.rec})
	return err
}

// read carries out requests until there are no more.
func (s *server) read(ctx context.Context, lines *bufio.Reader) error {
	requests := make(chan request)
	failed := make(chan error, 1)
	go func() { // ends with in, or is left behind when ctx ends: the process is over then
		for {
			var r request
			if err := readLine(lines, &r); err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case r := <-requests:
			s.carryOut(ctx, r)
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// carryOut does what r asks for; what may take time beside everything else.
func (s *server) carryOut(ctx context.Context, r request) {
	switch r.Order {
	case orderPhase:
		s.turn(r.Phase, r.Block)
		s.answer(message{ID: r.ID})
	case orderBegin:
		s.rec.Begin(r.Begin)
		s.answer(message{ID: r.ID})
	default:
		s.orders.Go(func() {
			answer, err := s.do(ctx, r)
			m := message{ID: r.ID, Answer: answer}
			if err != nil {
				m.Error = err.Error()
			}
			_ = s.snapshot() // what the answer is about has arrived when it does
			s.answer(m)
		})
	}
}

func (s *server) do(ctx context.Context, r request) (json.RawMessage, error) {
	answer, err := s.worker.Do(ctx, r.Order, r.Arg)
	if answer == nil {
		return nil, err
	}
	data, failed := json.Marshal(answer)
	return data, errors.Join(err, failed)
}

// turn ends a phase: what was recorded until now belongs to it.
func (s *server) turn(phase string, block int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.snapshotLocked() // a parent that is gone is noticed by the end of its lines
	s.phase, s.block = phase, block
}

func (s *server) snapshot() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshotLocked()
}

// snapshotLocked sends what was recorded. Called with mu held.
func (s *server) snapshotLocked() error {
	return s.out.Encode(message{Snapshot: &taken{Phase: s.phase, Block: s.block, What: s.rec.Snapshot()}})
}

// answer writes m. A parent that is gone is noticed by the end of its lines.
func (s *server) answer(m message) { _ = s.write(m) }

func (s *server) write(m message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Encode(m)
}

// tick sends snapshots until ctx ends.
func (s *server) tick(ctx context.Context) {
	ticker := time.NewTicker(snapshotEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if s.snapshot() != nil {
				return // nobody reads: stdin ends, too
			}
		case <-ctx.Done():
			return
		}
	}
}

// watchLag records how late a timer of this process is, until ctx ends.
func (s *server) watchLag(ctx context.Context) {
	lag := s.rec.Latency(measure.LagName)
	due := time.Now().Add(lagEvery)
	timer := time.NewTimer(lagEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		for !due.After(now) { // each one that was missed counts
			lag.Record(due, now)
			due = due.Add(lagEvery)
		}
		timer.Reset(due.Sub(now))
	}
}

// readLine decodes the next line into v.
func readLine(lines *bufio.Reader, v any) error {
	var line []byte
	for {
		piece, err := lines.ReadSlice('\n')
		if len(line)+len(piece) > maxLine {
			return fmt.Errorf("a line of more than %d bytes", maxLine)
		}
		if err == nil && line == nil {
			line = piece
			break
		}
		line = append(line, piece...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return json.Unmarshal(line, v)
}

// Processes returns how many generator processes a load of n viewers that each
// get rate messages a second is divided among, when nobody says: as few as have
// the time, since they share the machine with what is measured.
func Processes(n int, rate float64) int {
	const (
		perProcess  = 30_000 // messages a second
		mostViewers = 8_000  // of one process, with room for descriptors
	)
	busy := int(math.Ceil(float64(n) * rate / perProcess))
	return max(1, min(busy, runtime.NumCPU()), (n+mostViewers-1)/mostViewers)
}
