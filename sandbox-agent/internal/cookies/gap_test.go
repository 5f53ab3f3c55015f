package cookies

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
)

// childGap is set for a process that TestKilledInGap starts: where it stops, and at
// which sequence.
const childGap = "FAIRLEAD_TEST_COOKIES_GAP"

// Where a process stops: its sequence is stored, and
const (
	gapBeforeSet     = "set"     // the kept set isn't written
	gapBeforeBrowser = "browser" // that is, and Chromium has nothing of it
)

// A stoppingChromium never comes back from the cookie that has a name.
type stoppingChromium struct {
	tellingChromium
	at string
}

func (c stoppingChromium) SetCookies(ctx context.Context, session protocol.SessionID, cookies []seal.Cookie) (map[int]string, error) {
	if cookies[0].Name == c.at {
		fmt.Println("gap", c.at)
		waitToBeKilled()
	}
	return c.tellingChromium.SetCookies(ctx, session, cookies)
}

// waitToBeKilled waits for the parent, and no longer than there is one.
func waitToBeKilled() { io.Copy(io.Discard, os.Stdin) }

// runIntoGap sends a sink all envelopes up to a sequence, and stops within that one.
func runIntoGap(dir, gap string) {
	var where string
	var last int
	if _, err := fmt.Sscan(gap, &where, &last); err != nil {
		os.Exit(1)
	}
	o := Options{Dir: dir, Sandbox: sandbox, Chromium: tellingChromium{}, Isolated: true}
	if where == gapBeforeBrowser {
		o.Chromium = stoppingChromium{at: fmt.Sprint(last)}
	}
	sink, err := Open(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := range last {
		pushNumbered(sink, i)
	}
	if where == gapBeforeSet {
		if err := stopReading(sink.pairingsOf(sid)[0].kept.path, savedSet(dir), last); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	pushNumbered(sink, last)
}

// savedSet is where a kept set is as long as a pipe stands in its place.
func savedSet(dir string) string { return dir + "-saved" }

// stopReading puts a pipe in a kept set's place. Who rewrites the set reads the old one
// first, and waits there for ever; once it does, the parent is told.
func stopReading(path, saved string, last int) error {
	if err := os.Rename(path, saved); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return err
	}
	go func() {
		pipe, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for a reader
		fmt.Println("gap", last)
		waitToBeKilled()
		if err == nil {
			pipe.Close() // not earlier: the set would end
		}
	}()
	return nil
}

// TestKilledInGap kills process after process with SIGKILL when an envelope's sequence
// is stored and its cookies aren't written. The next process says 409 to that envelope
// and to all before it, and takes the next one: nothing is taken twice.
func TestKilledInGap(t *testing.T) {
	r := newRig(t)
	dir := r.dirOf(sid) + "/" + string(r.share(killSecret).id)
	set, taken, want := map[string]int{}, map[string]int{}, map[string]bool{}
	for i := range *kills {
		where, last := gapBeforeSet, 2*i
		if i%2 == 1 {
			where = gapBeforeBrowser
		}
		old := killInGap(t, r.o.Dir, where, last, set, taken)
		if old != max(0, last-1) {
			t.Errorf("%d of %d envelopes are old", old, max(0, last-1))
		}
		var sequences trackerFile
		text, err := os.ReadFile(filepath.Join(dir, trackerName))
		must(t, errors.Join(err, json.Unmarshal(text, &sequences)))
		if sequences.Last["host"] != int64(last) {
			t.Fatalf("killed before %s: the sequence is %d, want %d", where, sequences.Last["host"], last)
		}
		if where == gapBeforeSet {
			restoreSet(t, dir, savedSet(r.o.Dir))
		}
		want[fmt.Sprint(last)] = where == gapBeforeBrowser // Chromium is given it at its next start
		if last > 0 {
			want[fmt.Sprint(last-1)] = true
			if n := fmt.Sprint(last - 1); set[n] != 1 || taken[n] != 1 {
				t.Errorf("%s was written %d times and answered with 200 %d times", n, set[n], taken[n])
			}
		}
	}
	r.reopen()
	for _, c := range r.Kept(sid) {
		if !want[c.Name] {
			t.Errorf("%s is kept", c.Name)
		}
		delete(want, c.Name)
	}
	for name, is := range want {
		if is {
			t.Errorf("%s isn't kept", name)
		}
	}
	if len(set) != *kills-1 || len(taken) != *kills-1 {
		t.Errorf("%d were written and %d answered with 200, want %d", len(set), len(taken), *kills-1)
	}
	t.Logf("%d killed in the gap, %d taken between", *kills, len(taken))
}

// killInGap starts a child and kills it in its gap. It counts what the child has said,
// and returns how many envelopes were old.
func killInGap(t *testing.T, dir, where string, last int, set, taken map[string]int) (old int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s=%s %d", childGap, where, last))
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	must(t, err)
	defer in.Close()
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	reached := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch what, name, _ := strings.Cut(lines.Text(), " "); what {
		case "set":
			set[name]++
		case "200":
			taken[name]++
		case "409":
			old++
		case "gap":
			reached = name == fmt.Sprint(last)
			must(t, child.Process.Kill())
		default:
			t.Errorf("a child says %q", lines.Text())
		}
	}
	_ = child.Wait() // killed
	if !reached {
		t.Fatalf("the child didn't come to %d", last)
	}
	return old
}

// restoreSet puts a kept set back in place of the pipe. That the next one was begun
// beside it shows where the process was killed.
func restoreSet(t *testing.T, dir, saved string) {
	t.Helper()
	if halves, err := filepath.Glob(filepath.Join(dir, "."+keptName+"-*")); err != nil || len(halves) != 1 {
		t.Errorf("halves of sets: %v, %v", halves, err)
	}
	must(t, os.Remove(filepath.Join(dir, keptName)))
	if err := os.Rename(saved, filepath.Join(dir, keptName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}
