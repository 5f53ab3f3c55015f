package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// residentOf returns the memory that a process holds, in bytes.
func residentOf(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	must(t, err)
	return pages * os.Getpagesize()
}

// A footprint is what a process holds.
type footprint struct {
	goroutines, descriptors, heap int
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d KiB", f.goroutines, f.descriptors, f.heap>>10)
}

// relayFootprint asks the first relay what it holds, garbage apart.
func relayFootprint(ctx context.Context, t *testing.T, s *Stack) footprint {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	admin := s.Ready.Relays[0].AdminURL
	status, _, err := Call(ctx, http.MethodGet, admin+"/debug/pprof/heap?gc=1", "", nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("garbage collection: %d %v", status, err)
	}
	_, text, err := Call(ctx, http.MethodGet, admin+"/metrics", "", nil)
	must(t, err)
	return footprintIn(t, string(text))
}

// agentFootprint asks the first sandbox's agent. Its garbage is its own affair.
func agentFootprint(ctx context.Context, t *testing.T, s *Stack) footprint {
	t.Helper()
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	status, text, err := Call(ctx, http.MethodGet, alice.Base+"/sessions/"+string(s.Ready.SessionID)+"/metrics?format=prometheus", grant, nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("the agent's metrics: %d %v", status, err)
	}
	return footprintIn(t, string(text))
}

func footprintIn(t *testing.T, metrics string) footprint {
	t.Helper()
	value := func(name string) int {
		for line := range strings.Lines(metrics) {
			if number, found := strings.CutPrefix(line, name+" "); found {
				f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
				must(t, err)
				return int(f)
			}
		}
		t.Fatalf("no %s", name)
		return 0
	}
	return footprint{value("go_goroutines"), value("process_open_fds"), value("go_memstats_heap_alloc_bytes")}
}

// returns awaits that what a process holds is at most what it held before, and
// a little more.
func returns(t *testing.T, who string, before footprint, now func() footprint, more footprint) {
	t.Helper()
	var is footprint
	defer func() { t.Logf("%s: %v before, %v after", who, before, is) }()
	await(t, fmt.Sprintf("%s to be as it was: %v", who, before), func() bool {
		is = now()
		return is.goroutines <= before.goroutines+more.goroutines && is.descriptors <= before.descriptors+more.descriptors &&
			(more.heap == 0 || is.heap <= before.heap+more.heap)
	})
}
