package ledger

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
)

var (
	kills    = flag.Int("kills", 10, "processes that TestKilled kills")
	killSeed = flag.Uint64("seed", 0, "of TestKilled; 0: another each time")
)

// childDir is set for a process that TestKilled starts, and kills.
const childDir = "FAIRLEAD_TEST_LEDGER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := runChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// killIDs is how many commands each child is sent, all of them again each time.
const killIDs = 2000

// runChild executes commands as an agent does, from four tunnels at once. An
// execution is a line in a file.
func runChild(dir string) error {
	l, err := Open(filepath.Join(dir, "state"), time.Now)
	if err != nil {
		return err
	}
	ran, err := os.OpenFile(filepath.Join(dir, "ran"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	var tunnels sync.WaitGroup
	failed := make(chan error, 4)
	for range cap(failed) {
		tunnels.Go(func() {
			for i := range killIDs {
				if err := execute(l, ran, protocol.CommandID(fmt.Sprintf("cmd_%d", i))); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	tunnels.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return l.Close()
	}
}

func execute(l *Ledger, ran io.Writer, id protocol.CommandID) error {
	prior, err := l.Begin(id, digest, time.Now().Add(ttl))
	if err != nil || prior != nil {
		return err
	}
	if _, err := fmt.Fprintln(ran, id); err != nil {
		return err
	}
	fmt.Println(id) // so that the parent can kill now
	return l.Finish(id, []byte("result of "+id))
}

// TestKilled kills process after process with SIGKILL, each of which gets the
// same commands: none runs twice, and each has its result or is unknown.
func TestKilled(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d -kills %d", seed, *kills)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	for range *kills {
		killedChild(t, dir, 1+random.IntN(300))
	}
	ran := executions(t, dir)
	l := open(t, filepath.Join(dir, "state"))
	unknown := 0
	for i := range killIDs {
		id := protocol.CommandID(fmt.Sprintf("cmd_%d", i))
		e, err := l.Lookup(id, digest)
		must(t, err)
		switch {
		case ran[id] > 1:
			t.Errorf("%s ran %d times", id, ran[id])
		case ran[id] == 1 && e == nil:
			t.Errorf("%s ran and is forgotten", id)
		case e == nil:
		case e.State == StateDone && (ran[id] != 1 || string(e.Result) != "result of "+string(id)):
			t.Errorf("%s ran %d times and returned %q", id, ran[id], e.Result)
		case e.State == StateUnknown:
			unknown++
		}
	}
	t.Logf("%d commands ran once, %d of %d are unknown", len(ran), unknown, killIDs)
	if len(ran) == 0 {
		t.Error("nothing ran")
	}
}

// killedChild starts a child and kills it once it has run so many commands.
func killedChild(t *testing.T, dir string, after int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewScanner(out)
	for range after {
		if !lines.Scan() {
			break // it has run them all
		}
	}
	if err := child.Process.Kill(); err != nil && !strings.Contains(err.Error(), "finished") {
		t.Error(err)
	}
	for lines.Scan() {
	}
	if err := child.Wait(); err != nil && child.ProcessState.ExitCode() > 0 {
		t.Fatal(err)
	}
}

// executions counts the lines that the children wrote.
func executions(t *testing.T, dir string) map[protocol.CommandID]int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "ran"))
	must(t, err)
	ran := make(map[protocol.CommandID]int)
	for id := range strings.Lines(string(data)) {
		ran[protocol.CommandID(strings.TrimSuffix(id, "\n"))]++
	}
	return ran
}
