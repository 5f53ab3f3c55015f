package chatlog

import (
	"context"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// BenchmarkAppend reports how long an event takes to be on disk, with and without
// an fsync, and while others append to logs of their own.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []struct {
		name   string
		sync   bool
		others int
	}{{"written", false, 0}, {"synced", true, 0}, {"synced beside 15", true, 15}} {
		b.Run(mode.name, func(b *testing.B) {
			s, l := openLog(b, Options{Dir: b.TempDir()})
			l.Live(true)
			ctx, cancel := context.WithCancel(b.Context())
			var others sync.WaitGroup
			for i := range mode.others {
				others.Go(func() {
					other, err := s.Log(conversation[:8] + conversation[:1+(i&7)] + conversation[:1+(i>>3)] + "x")
					if err != nil {
						b.Error(err)
						return
					}
					other.Live(true)
					for ctx.Err() == nil && other.Append(true, said("beside")) == nil {
					}
				})
			}
			var took []time.Duration
			e := said(strings.Repeat("a text as they are ", 10))
			for b.Loop() {
				begin := time.Now()
				if err := l.Append(mode.sync, e); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
			}
			cancel()
			others.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkReplay reads 5,000 events from disk.
func BenchmarkReplay(b *testing.B) {
	_, l := openLog(b, Options{Dir: b.TempDir()})
	e := said(strings.Repeat("a text as they are ", 10))
	l.Live(true)
	for range 5000 {
		must(b, l.Append(false, e))
	}
	l.Live(false)
	for b.Loop() {
		if got := count(b, l); got != 5000 {
			b.Fatal(got)
		}
	}
}

// BenchmarkWhole reads a log that is as large as it gets, and reports how much
// memory that takes at most.
func BenchmarkWhole(b *testing.B) {
	_, l := openLog(b, Options{Dir: b.TempDir()})
	e := said(strings.Repeat("a text as they are ", 1000))
	l.Live(true)
	for range 3400 {
		must(b, l.Append(false, e))
	}
	l.Live(false)
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	for b.Loop() {
		r, at := l.Read(0, l.Position().Last)
		for n := 0; ; n++ {
			if _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			if n%500 == 0 {
				runtime.GC() // what is held, rather than what is garbage
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
			}
		}
		r.Close()
		b.SetBytes(int64(at.Last-at.First+1) * 19_200)
	}
	b.ReportMetric(float64(peak)/1024, "KiB-held")
}

func count(b *testing.B, l *Log) (n int) {
	r, _ := l.Read(0, l.Position().Last)
	defer r.Close()
	for {
		if _, err := r.Next(); err == io.EOF {
			return n
		} else if err != nil {
			b.Fatal(err)
		}
		n++
	}
}

// BenchmarkSaid reports how long it takes to know who has said what in a log that
// is as large as it gets, of what programs print piece by piece and a person's
// message in 1,000 events: the first time, and later.
func BenchmarkSaid(b *testing.B) {
	_, l := openLog(b, Options{Dir: b.TempDir()})
	l.Live(true)
	for size := int64(0); size < protocol.ChatLogBytes-5<<20; size = logSize(l) {
		events := make([]*protocol.ChatEvent, 1000)
		for i := range events {
			events[i] = &protocol.ChatEvent{Kind: protocol.ChatStreamDelta, Content: new(`a few words of a "user" `), Timestamp: "2026-06-11T10:00:00.000Z"}
		}
		events[0].Kind, events[0].Role = protocol.ChatText, "user"
		must(b, l.Append(false, events...))
	}
	l.Live(false)
	for _, first := range []bool{true, false} {
		b.Run(map[bool]string{true: "first", false: "later"}[first], func(b *testing.B) {
			var x Indexes
			if _, err := x.Said(l); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if first {
					x.Forget(l.id)
				}
				if said, err := x.Said(l); err != nil || len(said.Sayings) < 50 {
					b.Fatal(len(said.Sayings), err)
				}
			}
		})
	}
}

// logSize returns the bytes of a log on disk.
func logSize(l *Log) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size()
}
