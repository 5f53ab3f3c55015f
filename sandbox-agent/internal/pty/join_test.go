package pty

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A printing is a program that prints pieces, each some time after the one before,
// through a kernel that holds up to 64 KiB of it and hands out 4 KiB at once.
type printing struct {
	pieces      []printed
	room, ready chan struct{} // 1 element each

	mu   sync.Mutex
	held bytes.Buffer // guarded by mu
	over bool         // guarded by mu
}

func newPrinting(pieces []printed) *printing {
	return &printing{pieces: pieces, room: make(chan struct{}, 1), ready: make(chan struct{}, 1)}
}

type printed struct {
	after time.Duration
	size  int
}

const (
	kernelBytes = 64 << 10
	kernelRead  = 4095
)

func (p *printing) run() {
	n := byte(0)
	for _, one := range p.pieces {
		time.Sleep(one.after)
		for left := one.size; ; {
			p.mu.Lock()
			for ; left > 0 && p.held.Len() < kernelBytes; left-- {
				p.held.WriteByte(n)
				n++
			}
			p.mu.Unlock()
			poke(p.ready)
			if left == 0 {
				break
			}
			<-p.room
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	poke(p.ready)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (p *printing) more(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held.Len() == 0 {
		if p.over {
			return 0, io.EOF
		}
		return 0, nil
	}
	n, _ := p.held.Read(b[:min(len(b), kernelRead)])
	poke(p.room)
	return n, nil
}

func (p *printing) await(b []byte) (int, error) {
	for {
		if n, err := p.more(b); n > 0 || err != nil {
			return n, err
		}
		<-p.ready
	}
}

// A handed is what a reader got, and when.
type handed struct {
	at   time.Duration
	size int
}

// join reads all of a printing. Each read takes the reader as long as busy.
func join(t *testing.T, busy time.Duration, pieces ...printed) (got []handed) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPrinting(pieces)
		go p.run() // ends with its pieces
		j := joiner{from: p}
		buf, start, next := make([]byte, joinBytes), time.Now(), byte(0)
		for {
			n, err := j.Read(buf)
			if err == io.EOF {
				break
			}
			for _, b := range buf[:n] {
				if b != next {
					t.Fatalf("got %d, want %d", b, next)
				}
				next++
			}
			got = append(got, handed{time.Since(start), n})
			time.Sleep(busy)
		}
	})
	sum := 0
	for _, h := range got {
		sum += h.size
	}
	for _, one := range pieces {
		sum -= one.size
	}
	if sum != 0 {
		t.Fatalf("%d bytes too many", sum)
	}
	return got
}

func repeat(n int, one printed) (all []printed) {
	for range n {
		all = append(all, one)
	}
	return all
}

// TestJoinBudget: what many small pieces cost is bounded by time, not by their
// number; and what comes at leisure, or floods, is handed on as it comes.
func TestJoinBudget(t *testing.T) {
	second := func(perSecond, size int) []printed {
		return repeat(perSecond, printed{time.Second / time.Duration(perSecond), size})
	}
	most := int(time.Second/joinFor) + joinAlone + 1
	for _, tt := range []struct {
		name      string
		pieces    []printed
		from, to  int // how often is handed on
		busy, max time.Duration
	}{
		{"at leisure", second(50, 1000), 50, 50, 0, 0},
		{"as often as it may", second(500, 1000), 500, 500, 0, 0},
		{"fast", second(4000, 1000), most - 20, most, 0, joinFor},
		{"faster than the kernel keeps", second(6000, 1000), 6000 / 10, 6000 / 7, 0, joinFor / 4 * 3},
		{"fast, and small", second(20_000, 10), most - 20, most, 0, joinFor},
		{"fast, of a slow reader", second(4000, 1000), most / 2, most, 100 * time.Microsecond, joinFor},
		{"a flood", second(5000, 8000), 8000, 15_000, 0, 0},
		{"a flood that is held back now and then", floodWithPauses(), 4240, 4260, 40 * time.Microsecond, 0},
		{"a flood of a slow reader", repeat(500, printed{0, 32 << 10}), 4000, 4010, 40 * time.Microsecond, 0},
	} {
		got := join(t, tt.busy, tt.pieces...)
		if len(got) < tt.from || len(got) > tt.to {
			t.Errorf("%s: handed on %d times, want %d to %d", tt.name, len(got), tt.from, tt.to)
		}
		if late := latest(tt.pieces, got); late > tt.max && tt.busy == 0 {
			t.Errorf("%s: held up for %v", tt.name, late)
		}
	}
}

// floodWithPauses is a flood that stands still for so long, again and again, that it
// is little on the average.
func floodWithPauses() (all []printed) {
	for i := range 500 {
		one := printed{0, 32 << 10}
		if i%2 == 0 {
			one.after = 50 * time.Millisecond
		}
		all = append(all, one)
	}
	return all
}

// latest returns the longest time from when something was printed until it was
// handed on.
func latest(pieces []printed, got []handed) (late time.Duration) {
	var at time.Duration
	end, sum, next := 0, 0, 0
	for _, one := range pieces {
		at += one.after
		end += one.size
		for ; next < len(got) && sum < end; next++ { // the last of them has its end
			sum += got[next].size
		}
		late = max(late, got[next-1].at-at)
	}
	return late
}

// TestJoinAfterSilence: the first piece after a silence is handed on at once and
// alone, however much came before, and behind it.
func TestJoinAfterSilence(t *testing.T) {
	pieces := repeat(1000, printed{100 * time.Microsecond, 100})
	for range 5 {
		pieces = append(pieces, printed{2 * joinFor, 77})
		pieces = append(pieces, repeat(1000, printed{100 * time.Microsecond, 100})...)
	}
	alone := 0
	for _, h := range join(t, 0, pieces...) {
		if h.size == 77 {
			alone++
		}
	}
	if alone != 5 {
		t.Errorf("%d of 5 were handed on alone", alone)
	}
}

// TestJoinNoEcho: what comes next after something was typed isn't held up.
func TestJoinNoEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrinting(repeat(10_000, printed{200 * time.Microsecond, 1}))
		go p.run() // ends with its pieces
		j := joiner{from: p}
		buf := make([]byte, joinBytes)
		for i := range 3000 {
			echo := i > 100 && i%2 == 0
			if echo {
				j.typed.Store(true)
			}
			start := time.Now()
			n, err := j.Read(buf)
			if err == io.EOF {
				return
			}
			if took := time.Since(start); echo && (took > 200*time.Microsecond || n != 1) {
				t.Fatalf("an echo was held up for %v, with %d bytes", took, n)
			}
		}
	})
}

// TestJoinAnything: whatever a program prints, and when, all of it comes in order,
// and nothing is held up for longer than joinFor.
func TestJoinAnything(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var pieces []printed
		for range 300 {
			pieces = append(pieces, printed{time.Duration(r.ExpFloat64() * float64(time.Duration(1+r.IntN(4000))*time.Microsecond)), 1 + r.IntN(1+r.IntN(9000))})
		}
		if late := latest(pieces, join(t, 0, pieces...)); late > joinFor {
			t.Errorf("seed %d: held up for %v", seed, late)
		}
	}
}
