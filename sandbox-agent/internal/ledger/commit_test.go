package ledger

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A slowJournal takes its time to sync, and counts.
type slowJournal struct {
	journalFile
	syncs  *atomic.Int64
	before func() error
}

func (j slowJournal) Sync() error {
	j.syncs.Add(1)
	if err := j.before(); err != nil {
		return err
	}
	return j.journalFile.Sync()
}

// TestOneSyncForMany: what comes while an fsync is under way shares the next.
func TestOneSyncForMany(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir)
		var syncs atomic.Int64
		l.journal = slowJournal{l.journal, &syncs, func() error { time.Sleep(time.Second); return nil }}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { begin(t, l, protocol.CommandID(fmt.Sprintf("cmd_%d", i))) })
		}
		all.Wait()
		if n, took := syncs.Load(), time.Since(start); n > 3 || took > 3*time.Second {
			t.Errorf("%d fsyncs in %v", n, took)
		}
		for i := range 100 {
			must(t, l.Finish(protocol.CommandID(fmt.Sprintf("cmd_%d", i)), []byte("made")))
		}
		if n := syncs.Load(); n > 3 {
			t.Errorf("%d fsyncs, some after the run", n)
		}
		l = open(t, dir)
		for i := range 100 {
			wantPrior(t, l, protocol.CommandID(fmt.Sprintf("cmd_%d", i)), StateDone, "made")
		}
	})
}

// TestNothingWaitsForTheSync: results are stored, and what is known is told,
// while an fsync is under way.
func TestNothingWaitsForTheSync(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir)
		begin(t, l, "cmd_1")
		var syncs atomic.Int64
		l.journal = slowJournal{l.journal, &syncs, func() error { time.Sleep(time.Hour); return nil }}
		var second sync.WaitGroup
		second.Go(func() { begin(t, l, "cmd_2") })
		synctest.Wait()
		start := time.Now()
		must(t, l.Finish("cmd_1", []byte("made")))
		wantPrior(t, l, "cmd_1", StateDone, "made")
		if _, err := l.NextGeneration(); err != nil {
			t.Error(err)
		}
		must(t, l.Err())
		if took := time.Since(start); took > 0 {
			t.Errorf("waited %v", took)
		}
		second.Wait()
	})
}

// TestSharedFailure: who shared an fsync that failed shares its error, and
// nothing of it runs.
func TestSharedFailure(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir)
		var syncs atomic.Int64
		l.journal = slowJournal{l.journal, &syncs, func() error {
			time.Sleep(time.Second)
			if syncs.Load() == 1 {
				return nil
			}
			return errors.New("I/O error")
		}}
		var granted, refused atomic.Int64
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				// Two of each id: the second shares the fate of the first.
				prior, err := l.Begin(protocol.CommandID(fmt.Sprintf("cmd_%d", i/2)), digest, time.Now().Add(ttl))
				switch {
				case err != nil:
					wantKind(t, err, protocol.KindUnavailable)
					refused.Add(1)
				case prior == nil:
					granted.Add(1)
				}
			})
		}
		all.Wait()
		if granted.Load() != 1 || refused.Load() < 98 {
			t.Errorf("%d granted, %d refused", granted.Load(), refused.Load())
		}
		if l.Err() == nil {
			t.Error("all well")
		}
	})
}

// TestCrowded bounds what waits for one fsync.
func TestCrowded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir)
		var syncs, refused atomic.Int64
		l.journal = slowJournal{l.journal, &syncs, func() error { time.Sleep(time.Second); return nil }}
		var all sync.WaitGroup
		for i := range maxBatch + 100 {
			all.Go(func() {
				if _, err := l.Begin(protocol.CommandID(fmt.Sprintf("cmd_%d", i)), digest, time.Now().Add(ttl)); err != nil {
					wantKind(t, err, protocol.KindTooMany)
					refused.Add(1)
				}
			})
		}
		all.Wait()
		if n := refused.Load(); n == 0 || n > 100 {
			t.Errorf("%d refused", n)
		}
	})
}

// benchSync is what the disk needs for 512 bytes.
func benchSync(b *testing.B) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "probe"))
	must(b, err)
	defer f.Close()
	const rounds = 50
	start := time.Now()
	for range rounds {
		_, err := f.Write(make([]byte, 512))
		must(b, err)
		must(b, f.Sync())
	}
	return time.Since(start) / rounds
}

// BenchmarkBegin compares one command after the other with an fsync of 512
// bytes on the same disk.
func BenchmarkBegin(b *testing.B) {
	l := open(b, b.TempDir())
	probe := benchSync(b)
	deadline := time.Now().Add(ttl)
	i := 0
	for b.Loop() {
		id := protocol.CommandID(fmt.Sprintf("cmd_%d", i))
		i++
		if prior, err := l.Begin(id, digest, deadline); prior != nil || err != nil {
			b.Fatal(prior, err)
		}
		must(b, l.Finish(id, []byte(`{"status":"ok"}`)))
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(probe), "fsyncs/op")
}

// BenchmarkBegin100 has a hundred at the same time.
func BenchmarkBegin100(b *testing.B) {
	l := open(b, b.TempDir())
	probe := benchSync(b)
	deadline := time.Now().Add(ttl)
	var next atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				id := protocol.CommandID(fmt.Sprintf("cmd_%d", i))
				if prior, err := l.Begin(id, sha256.Sum256([]byte(id)), deadline); prior != nil || err != nil {
					b.Error(prior, err)
				}
				if err := l.Finish(id, []byte(`{"status":"ok"}`)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
	b.ReportMetric(float64(time.Second)/float64(probe), "fsync/s")
}
