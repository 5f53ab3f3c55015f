package terminal

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

func TestInputIsAckedWhenWritten(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		v.typed(term, 1, "ls\r")
		v.wantAck(1)
		if got := r.dev.take(); got != "ls\r" {
			t.Fatalf("wrote %q", got)
		}
		r.dev.setRoom(2)
		v.typed(term, 2, "exit\r")
		synctest.Wait()
		v.nothing() // two bytes are not all of it
		r.dev.setRoom(10)
		v.wantAck(2)
		if got := r.dev.take(); got != "exit\r" {
			t.Fatalf("wrote %q", got)
		}
	})
}

func TestOnlyTheControllerTypes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		v.typed(0, 1, "x")
		v.wantRefused(1, protocol.RefusedNotController)
		term := v.propose(alice).Lease.Term
		v.typed(term-1, 2, "x")
		v.wantRefused(2, protocol.RefusedStaleTerm)
		v.typed(term+1, 3, "x")
		v.wantRefused(3, protocol.RefusedStaleTerm)
		if got := r.dev.take(); got != "" {
			t.Fatalf("wrote %q", got)
		}
		v.typed(term, 1, "ok") // a refused sequence is not used up
		v.wantAck(1)
	})
}

func TestQueueIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		r.dev.setRoom(0)
		chunk := strings.Repeat("x", 8<<10)
		const n = protocol.MaxInputQueued / (8 << 10)
		for seq := range uint64(n) {
			v.typed(term, seq+1, chunk)
		}
		v.nothing()
		v.typed(term, n+1, "y")
		v.wantRefused(n+1, protocol.RefusedBusy)
		r.dev.setRoom(len(chunk))
		v.wantAck(1)
		v.typed(term, n+2, "z")
		r.dev.setRoom(1 << 20)
		for last := uint64(0); last < n+2; {
			last = want[protocol.InputAck](v).Seq
		}
		if got := r.dev.take(); got != strings.Repeat(chunk, n)+"z" {
			t.Fatalf("wrote %d bytes", len(got))
		}
	})
}

func TestQueueIsBoundedInItems(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		r.dev.setRoom(0)
		for seq := range uint64(arbiter.MaxQueuedItems) {
			v.typed(term, seq+1, "x")
		}
		v.nothing()
		v.typed(term, arbiter.MaxQueuedItems+1, "x")
		v.wantRefused(arbiter.MaxQueuedItems+1, protocol.RefusedBusy)
	})
}

// TestQueuedInputOfAnOldTerm hands control on while input waits: none of it is
// written, not even the rest of what was begun.
func TestQueuedInputOfAnOldTerm(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		r.dev.setRoom(3)
		v.typed(term, 1, "rm -rf build\r")
		v.typed(term, 2, "y\r")
		next := v.propose(bob).Lease.Term
		v.wantRefused(1, protocol.RefusedStaleTerm)
		v.wantRefused(2, protocol.RefusedStaleTerm)
		r.dev.setRoom(100)
		v.Input(protocol.Input{Term: next, Seq: 1, Client: "d", Bytes: []byte("ls\r")})
		want[protocol.InputAck](v)
		if got := r.dev.take(); got != "rm ls\r" {
			t.Fatalf("wrote %q", got)
		}
		// The client asks again, about both: still refused.
		v.typed(term, 1, "rm -rf build\r")
		v.wantRefused(1, protocol.RefusedStaleTerm)
		v.typed(next, 2, "y\r")
		v.wantRefused(2, protocol.RefusedStaleTerm)
	})
}

func TestInputOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		v.typed(term, 1, "a")
		v.wantAck(1)
		v.typed(term, 2, "b")
		v.wantAck(2)
		v.typed(term, 1, "a")
		v.wantAck(2) // all up to there
		r.dev.setRoom(0)
		v.typed(term, 3, "c")

		// The tunnel is lost with 3 under way; the relay sends it again.
		again := r.attach(t, nil)
		v.Close()
		want[protocol.Leased](again) // grace
		again.typed(term, 3, "c")
		synctest.Wait()
		again.nothing()
		r.dev.setRoom(10)
		again.wantAck(3)
		// And once more after another holder came.
		again.propose(bob)
		again.typed(term, 3, "c")
		again.wantAck(3)
		if got := r.dev.take(); got != "abc" {
			t.Fatalf("wrote %q", got)
		}
	})
}

func TestAcksAreMerged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		for seq := range uint64(100) {
			v.typed(term, seq+1, "x")
		}
		v.wantAck(100)
		v.nothing()
	})
}

func TestQueuedInputAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		r.dev.setRoom(0)
		v.typed(term, 1, "x")
		r.proc.exit(0)
		v.wantRefused(1, protocol.RefusedEnded)
		want[protocol.Exited](v)
	})
}

// TestAnswers shows that a query is answered to the program only, and never in
// the middle of somebody's input.
func TestAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		r.dev.output <- []byte("a\x1b[cb")
		v.wantData(0, "ab")
		synctest.Wait() // viewers may see output before its queries are answered
		if got := r.dev.take(); got != "\x1b[?62;22c" {
			t.Fatalf("answered %q", got)
		}
		term := v.propose(alice).Lease.Term
		r.dev.setRoom(1)
		v.typed(term, 1, "é")
		v.typed(term, 2, "x")
		r.dev.output <- []byte("\x1b[5n")
		synctest.Wait()
		r.dev.setRoom(100)
		v.wantAck(2)
		if got := r.dev.take(); got != "é\x1b[0nx" {
			t.Fatalf("wrote %q", got)
		}
	})
}

// TestAnswersAreBounded lets a program ask without reading.
func TestAnswersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.dev.setRoom(0)
		for range 1000 {
			r.dev.output <- []byte(strings.Repeat("\x1b[c", 100))
		}
		synctest.Wait()
		r.dev.setRoom(1 << 20)
		synctest.Wait()
		if n := len(r.dev.take()); n == 0 || n > arbiter.MaxAnswerBytes {
			t.Fatalf("%d bytes of answers", n)
		}
	})
}

// TestManyClients shows that clients' sequences are apart.
func TestManyClients(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		for i := range 10 {
			client := fmt.Sprintf("client-%d", i)
			v.Input(protocol.Input{Term: term, Seq: 1, Client: client, Bytes: []byte{byte('0' + i)}})
			if m := want[protocol.InputAck](v); m.Client != client || m.Seq != 1 {
				t.Fatalf("%+v", m)
			}
		}
		time.Sleep(time.Second)
		if got := r.dev.take(); got != "0123456789" {
			t.Fatalf("wrote %q", got)
		}
	})
}
