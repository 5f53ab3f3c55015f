package terminal

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

const (
	lag    = protocol.MaxPaceLag
	unsent = protocol.MaxUnsent
)

// flood has the program print until it is held back, but no more than max
// bytes, and returns where the log ends then.
func (r *rig) flood(limit int) int {
	chunk := []byte(strings.Repeat("x", readBytes))
	for range limit / readBytes {
		synctest.Wait()
		if _, waiting := r.arbiter.Load(); waiting {
			break
		}
		r.dev.output <- chunk
	}
	synctest.Wait()
	return r.end()
}

// end returns where the log ends.
func (r *rig) end() int {
	return int(r.transcript.Head())
}

func (v *viewer) pace(id string, offset int) {
	v.Pace(protocol.Pace{ID: id, Offset: uint64(offset)})
}

// all is more output than anybody may be behind.
const all = 8 << 20

func wantHeld(t *testing.T, got, want int) {
	t.Helper()
	if got < want || got >= want+readBytes {
		t.Fatalf("read up to %d, want %d", got, want)
	}
}

func TestPlainViewersHoldNothingBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		wantHeld(t, r.flood(all), all)
		r.attach(t, nil)
		wantHeld(t, r.flood(all), 2*all)
	})
}

func TestPaceSettersHoldBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		v.pace("a", 0)
		v.pace("b", 0)
		wantHeld(t, r.flood(all), lag)
		v.pace("a", lag)
		wantHeld(t, r.flood(all), lag)
		v.pace("b", lag/2)
		wantHeld(t, r.flood(all), lag+lag/2)
		v.Pace(protocol.Pace{ID: "b", Gone: true})
		wantHeld(t, r.flood(all), 2*lag)
		start := time.Now()
		for range 20 { // fast enough
			time.Sleep(protocol.SlowAfter / 2)
			at := r.end() - lag/2
			v.pace("a", at)
			wantHeld(t, r.flood(all), at+lag)
		}
		v.pace("a", r.end())
		r.flood(all)
		if time.Since(start) != 10*protocol.SlowAfter {
			t.Fatal("time has passed")
		}
		end := r.end()
		time.Sleep(protocol.SlowAfter - 1)
		wantHeld(t, r.flood(all), end)
		time.Sleep(time.Nanosecond) // too slow
		wantHeld(t, r.flood(all), end+all)
		end = r.end()
		v.pace("a", end) // and there again
		wantHeld(t, r.flood(all), end+lag)
	})
}

// TestPaceOfALostTunnel: pace-setters who were lost keep their place, and without any
// the log waits nearly a window long.
func TestPaceOfALostTunnel(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		v.pace("a", 0)
		v.Lose()
		v.Lose() // harmless
		wantHeld(t, r.flood(all), lag)
		time.Sleep(protocol.ControlGrace / 2)
		w := r.attach(t, nil)
		if p := w.opened.Pacers; len(p) != 1 || p[0].ID != "a" {
			t.Fatalf("%+v", w.opened)
		}
		wantHeld(t, r.flood(all), lag)
		w.pace("a", lag)
		wantHeld(t, r.flood(all), 2*lag)
		w.Pace(protocol.Pace{ID: "a", Gone: true})
		for {
			m, err := w.Poll()
			if err != nil {
				t.Fatal(err)
			}
			if m == nil {
				break
			}
		}
		sent := r.end()
		w.Lose()
		wantHeld(t, r.flood(all), sent+unsent)
		time.Sleep(protocol.ControlGrace - 1)
		wantHeld(t, r.flood(all), sent+unsent)
		time.Sleep(time.Nanosecond)
		wantHeld(t, r.flood(all), sent+unsent+all)
		r.attach(t, nil).Lose()
		x := r.attach(t, nil) // found again
		x.pace("a", r.end())
		x.Close() // orderly, but a isn't gone
		end := r.end()
		wantHeld(t, r.flood(all), end+lag)
		time.Sleep(protocol.ControlGrace)
		wantHeld(t, r.flood(all), end+lag+all)
		y := r.attach(t, nil)
		y.pace("a", r.end())
		y.Pace(protocol.Pace{ID: "a", Gone: true})
		y.Close()
		end = r.end()
		wantHeld(t, r.flood(all), end+all)
	})
}

// TestHeldBackToTheEnd: what an ended program had printed arrives, whoever is
// behind.
func TestHeldBackToTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		v.pace("a", 0)
		head := r.flood(all)
		go func() { // ends when it is read
			r.dev.output <- []byte("last words")
			close(r.dev.output)
		}()
		synctest.Wait()
		if r.end() != head {
			t.Fatal("it is read on")
		}
		start := time.Now()
		r.proc.exit(0)
		<-r.life.gone
		if time.Since(start) != 0 {
			t.Error("the end waited")
		}
		old := r.attach(t, &protocol.Position{Epoch: v.opened.Epoch, Offset: uint64(head)})
		old.wantData(uint64(head), "last words")
		want[protocol.Exited](old)
	})
}

func TestTooManyPacers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		v.pace("recording", 0)
		wantHeld(t, r.flood(all), all)
		for i := range protocol.MaxPacers + 1 {
			v.pace(fmt.Sprint(i), r.end())
		}
		if n := len(r.attach(t, nil).opened.Pacers); n != protocol.MaxPacers {
			t.Errorf("%d pace-setters", n)
		}
		v.Close()
		v.pace("0", 0) // harmless
	})
}

// read takes all of a reading and spells it: output as it is, a size as <COLS>.
func spell(t *testing.T, reading *transcript.Reading, opened protocol.ReadOpened) string {
	t.Helper()
	var b strings.Builder
	at := opened.From
	for {
		m, err := reading.Next()
		if errors.Is(err, io.EOF) {
			if at != opened.To {
				t.Fatalf("ended at %d, not at %d", at, opened.To)
			}
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case protocol.Data:
			if m.Offset != at {
				t.Fatalf("data at %d, want %d", m.Offset, at)
			}
			at += uint64(len(m.Bytes))
			b.Write(m.Bytes)
		case protocol.Resized:
			fmt.Fprintf(&b, "<%d>", m.Cols)
		}
	}
}

func TestRead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		size := func(cols int) {
			r.view.mu.Lock()
			defer r.view.mu.Unlock()
			r.resized(cols, 24)
		}
		r.print("0123")
		size(90)
		r.print("4567")
		size(100)
		epoch := r.attach(t, nil).opened.Epoch
		for _, tt := range []struct {
			from, to uint64
			want     string
			opened   protocol.ReadOpened
		}{
			{0, 100, "0123<90>4567", protocol.ReadOpened{From: 0, To: 8, Cols: 80, Rows: 24}},
			{2, 4, "23", protocol.ReadOpened{From: 2, To: 4, Cols: 80, Rows: 24}},
			{4, 5, "4", protocol.ReadOpened{From: 4, To: 5, Cols: 90, Rows: 24}},
			{3, 7, "3<90>456", protocol.ReadOpened{From: 3, To: 7, Cols: 80, Rows: 24}},
			{8, 9, "", protocol.ReadOpened{From: 8, To: 8, Cols: 100, Rows: 24}},
			{5, 5, "", protocol.ReadOpened{From: 5, To: 5, Cols: 90, Rows: 24}},
		} {
			reading, opened, err := r.Read(protocol.ReadParams{Epoch: epoch, From: tt.from, To: tt.to})
			if err != nil || opened != tt.opened {
				t.Errorf("%d to %d: %+v %v", tt.from, tt.to, opened, err)
				continue
			}
			if got := spell(t, reading, opened); got != tt.want {
				t.Errorf("%d to %d: %q, want %q", tt.from, tt.to, got, tt.want)
			}
		}
		for _, tt := range []struct {
			p    protocol.ReadParams
			kind protocol.Kind
		}{
			{protocol.ReadParams{Epoch: epoch + 1, To: 4}, protocol.KindNotFound},
			{protocol.ReadParams{Epoch: epoch, From: 9, To: 10}, protocol.KindNotFound},
			{protocol.ReadParams{Epoch: epoch, From: 5, To: 4}, protocol.KindInvalid},
		} {
			if _, _, err := r.Read(tt.p); err == nil || protocol.KindOf(err) != tt.kind {
				t.Errorf("%+v: %v", tt.p, err)
			}
		}
	})
}

// TestReadTheOldest: what the log has dropped is not served, whether it was
// gone at the start or went while it was read.
func TestReadTheOldest(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		epoch := r.attach(t, nil).opened.Epoch
		r.flood(all)
		oldest := uint64(all - protocol.LogWindowBytes)
		reading, opened, err := r.Read(protocol.ReadParams{Epoch: epoch, From: 5, To: 1 << 60})
		if err != nil || opened.From != oldest || opened.To != all {
			t.Fatalf("%+v %v", opened, err)
		}
		if _, gone, err := r.Read(protocol.ReadParams{Epoch: epoch, From: 5, To: 10}); err != nil || gone.From != oldest || gone.To != oldest {
			t.Fatalf("%+v %v", gone, err)
		}
		if m, err := reading.Next(); err != nil || m.(protocol.Data).Offset != oldest {
			t.Fatal(m, err)
		}
		r.flood(all)
		if m, err := reading.Next(); !errors.Is(err, transcript.ErrSlid) {
			t.Fatal(m, err)
		}
	})
}

// BenchmarkFlood takes output through the grid, the log and one attachment.
func BenchmarkFlood(b *testing.B) {
	line := strings.Repeat("0123456789abcdef ls -l /usr/bin \x1b[32mok\x1b[0m ", 2)[:78] + "\r\n"
	chunk := []byte(strings.Repeat(line, 4096/len(line)+1)[:4096])
	for _, viewers := range []int{0, 1} {
		b.Run(fmt.Sprintf("viewers=%d", viewers), func(b *testing.B) {
			dev, proc := newFakeDevice(), newFakeProcess()
			term := newTerminal(session, protocol.PTYInfo{ID: "pty_1", Cols: 80, Rows: 24}, newProgram(dev, proc), site{}, slog.New(slog.DiscardHandler))
			var a *viewer
			if viewers > 0 {
				a = attach(b, term, nil)
			}
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			for b.Loop() {
				dev.output <- chunk
				if a == nil {
					continue
				}
				for {
					if m, err := a.Poll(); err != nil {
						b.Fatal(err)
					} else if m == nil {
						break
					}
				}
			}
			dev.Close()
			term.own.reader.Wait()
		})
	}
}
