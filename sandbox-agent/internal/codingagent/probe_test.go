package codingagent

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestProbe: a program runs as nobody, in an empty home that goes with it, and
// leaves nothing behind.
func TestProbe(t *testing.T) {
	each(t, func(w *world) {
		w.program("help", `echo "usage: --acp $1 $AROUND"; echo "$HOME" >&2; touch "$HOME/made"; id -u; sleep 1000 >/dev/null 2>&1 & echo "pid $!"; exit 3`)
		file := filepath.Join(w.dir, "bin", "help")
		printed, code, err := w.Probe(t.Context(), file, []string{"--help"})
		if err != nil || code != 3 || !strings.HasPrefix(string(printed), "usage: --acp --help \n") {
			t.Fatalf("%q %d %v", printed, code, err)
		}
		lines := strings.Split(strings.TrimSpace(string(printed)), "\n")
		if _, err := os.Stat(lines[1]); err == nil || lines[1] == os.Getenv("HOME") {
			t.Errorf("its home is there: %s", lines[1])
		}
		if w.own == (lines[2] == "0") && os.Geteuid() == 0 {
			t.Errorf("it ran as %s", lines[2])
		}
		if pid := strings.TrimPrefix(lines[3], "pid "); alive(pid) {
			t.Errorf("%s runs on", pid)
		}
		if calls := w.features.took(); len(calls) != 0 {
			t.Errorf("the features know of it: %v", calls)
		}
		w.program("silent", "exec sleep 1000")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, _, err := w.Probe(ctx, filepath.Join(w.dir, "bin", "silent"), nil); protocol.AsError(err).Kind != protocol.KindUnavailable {
			t.Errorf("without an end: %v", err)
		}
		if _, _, err := w.Probe(t.Context(), filepath.Join(w.dir, "bin", "none"), nil); protocol.AsError(err).Kind != protocol.KindUnavailable {
			t.Errorf("none: %v", err)
		}
	})
}

// TestHold: a session's home belongs to its user as soon as that is asked for, and
// to the same one when a program starts.
func TestHold(t *testing.T) {
	each(t, func(w *world) {
		if err := w.Hold(session); err != nil {
			t.Fatal(err)
		}
		a := w.known(session)
		before := *a.kept
		if _, err := w.pool(w.own).Keep(session); protocol.AsError(err).Kind != protocol.KindConflict {
			t.Errorf("another has it, too: %v", err)
		}
		if err := w.Hold(session); err != nil || a.kept.Account != before.Account {
			t.Errorf("%+v, %v", a.kept, err)
		}
		p := w.run("id -u; exit")
		if uid := w.line(p); w.own && uid != strconv.Itoa(before.UID) {
			t.Errorf("uid %s, not %d", uid, before.UID)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := w.Hold(session); protocol.AsError(err).Kind != protocol.KindUnavailable {
			t.Errorf("when it is closed: %v", err)
		}
	})
}
