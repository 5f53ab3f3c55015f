package terminal

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

// TestOutputOfTheAgent: the agent's output is all that is seen, whole, before the
// program behind is back, which loses nothing.
func TestOutputOfTheAgent(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		r.print("$ ")
		v.wantData(0, "$ ")
		cli := r.start(t)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, 1)
		go func() { r.dev.output <- []byte("meanwhile") }() // taken, and kept
		synctest.Wait()
		cli.dev.output <- []byte("working\x1b[?1049h\x1b[?25l\x1b[?1002h\x1b[?2004h")
		v.wantOutput("\x1b[?2004h")
		cli.dev.output <- []byte("done\x1b[6")
		cli.proc.exit(0)
		synctest.Wait()
		v.wantOutput("done")
		cli.dev.output <- []byte(strings.Repeat("x", 100) + "last")
		close(cli.dev.output)
		synctest.Wait()
		v.wantAgent(protocol.AgentStopped)
		v.wantLease("", 1)
		v.wantOutput("last\x18\x1b[?1049l\x1b[?1002l\x1b[!p\r\nmeanwhile")
		v.nothing()
		time.Sleep(redrawAfter)
		synctest.Wait()
		if want := [][2]int{{80, 23}, {80, 24}}; !slices.Equal(r.dev.sized(), want) {
			t.Errorf("the program behind got sizes %v", r.dev.sized())
		}
	})
}

// TestModesOfTheProgramBehind: it finds them as it left them.
func TestModesOfTheProgramBehind(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		r.print("\x1b[?2004h$ ")
		v.wantOutput("$ ")
		cli := r.start(t)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, 1)
		v.wantOutput("\x1b[!p\r\n")
		cli.quit(0)
		v.wantAgent(protocol.AgentStopped)
		v.wantLease("", 1)
		v.wantOutput("\x1b[!p\x1b[?2004h")
	})
}

// TestSizes: the agent starts with the terminal's size, gets each change, and
// the program behind learns of it when it is back.
func TestSizes(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		resize := func(cols, rows int) error { return r.host.Resize(session, "pty_1", cols, rows) }
		if err := resize(100, 30); err != nil {
			t.Fatal(err)
		}
		cli := r.start(t)
		if l := r.host.plans[1]; l.Cols != 100 || l.Rows != 30 || !l.Front {
			t.Errorf("%+v", l)
		}
		time.Sleep(time.Second)
		if err := resize(5000, 40); err != nil {
			t.Fatal(err)
		}
		if info := r.Info(); info.Cols != protocol.MaxCols || info.Rows != 40 {
			t.Errorf("%+v", info)
		}
		cli.quit(0)
		time.Sleep(redrawAfter)
		synctest.Wait()
		most := [2]int{protocol.MaxCols, 40}
		if !slices.Equal(cli.dev.sized(), [][2]int{most}) || !slices.Equal(r.dev.sized(), [][2]int{{100, 30}, {protocol.MaxCols, 39}, most}) {
			t.Errorf("sizes %v and %v", cli.dev.sized(), r.dev.sized())
		}
		for _, bad := range [][2]int{{0, 24}, {80, 0}, {-1, -1}} {
			wantKind(t, resize(bad[0], bad[1]), protocol.KindInvalid)
		}
		wantKind(t, r.host.Resize("ses_2", "pty_1", 80, 24), protocol.KindNotFound)
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term // also while somebody has control
		time.Sleep(time.Second)
		if err := resize(80, 24); err != nil {
			t.Fatal(err)
		}
		v.typed(term, 1, "x")
		v.wantAck(1)
		r.host.end(0)
		wantKind(t, resize(80, 25), protocol.KindEnded)
	})
}

// TestAgentOutlivesTheProgram: the terminal stays until the agent has ended.
func TestAgentOutlivesTheProgram(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		cli := r.start(t)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, 1)
		r.host.end(0)
		time.Sleep(time.Hour)
		v.wantOutput("\x1b[!p")
		cli.dev.output <- []byte("still here")
		v.wantOutput("still here")
		cli.quit(0)
		v.wantAgent(protocol.AgentStopped)
		v.wantLease("", 1)
		v.wantOutput("\r\n")
		want[protocol.Exited](v)
		<-r.life.gone
	})
}

// TestAnswersStayApart: a query is answered to the program that asked.
func TestAnswersStayApart(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		r.dev.setRoom(0)
		r.print("\x1b[c")
		cli := r.start(t)
		cli.dev.output <- []byte("\x1b[5n")
		synctest.Wait()
		if got := cli.dev.take(); got != "\x1b[0n" {
			t.Errorf("the agent got %q", got)
		}
		r.dev.setRoom(100)
		synctest.Wait()
		if got := r.dev.take(); got != "" {
			t.Errorf("the program behind got %q", got)
		}
		cli.quit(0)
		if got := r.dev.take(); got != "\x1b[?62;22c" {
			t.Errorf("back in front it got %q", got)
		}
	})
}

// TestPaceOfTheAgent: who holds the terminal back holds the agent back, and its
// last output is taken all the same.
func TestPaceOfTheAgent(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		v.pace("a", 0)
		cli := r.start(t)
		chunk := []byte(strings.Repeat("x", readBytes))
		held := func() bool {
			synctest.Wait()
			_, waiting := r.arbiter.Load()
			return waiting
		}
		for !held() {
			cli.dev.output <- chunk
		}
		before := r.rig.end()
		wantHeld(t, before, lag)
		cli.proc.exit(0)
		cli.dev.output <- []byte("last")
		close(cli.dev.output)
		synctest.Wait()
		if front, _ := r.arbiter.Front(); front != r.own.Program {
			t.Fatal("the agent is in front")
		}
		if r.rig.end() < before+len("last") {
			t.Error("output is missing")
		}
	})
}

// TestStartWhileClosing: an agent that comes too late is ended with the terminal.
func TestStartWhileClosing(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		must(t, r.arbiter.ReserveAgent())
		r.close()
		r.host.end(0)
		if r.released() {
			t.Fatal("it ended under an agent that is about to start")
		}
		dev, proc, err := r.host.launch(r.launched)
		if err != nil {
			t.Fatal(err)
		}
		r.bringForward(newProgram(dev, proc), arbiter.Arrival{Name: robot})
		<-r.life.gone
		if r.host.launched[1].proc.running {
			t.Error("the agent runs on")
		}
	})
}
