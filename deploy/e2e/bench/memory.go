package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// memoryBound is how many KiB of the relay's memory one idle viewer may
	// take, without TLS.
	memoryBound   = 32.0
	memoryViewers = 1000
)

// measureMemory attaches idle viewers to a relay that has just started, and
// returns what each takes: resident, and in use by the Go heap and stacks.
func measureMemory(ctx context.Context, bin string) ([]*figure, error) {
	resident := &figure{name: "memory per idle viewer, resident", bound: memoryBound, unit: "KiB"}
	inUse := &figure{name: "memory per idle viewer, in use", bound: memoryBound, unit: "KiB"}
	for range 3 {
		rss, used, err := memoryOnce(ctx, bin)
		if err != nil {
			return nil, err
		}
		resident.add(rss / memoryViewers / 1024)
		inUse.add(used / memoryViewers / 1024)
		fmt.Fprintf(os.Stderr, "memory: %d viewers take %.1f MiB resident, %.1f MiB in use\n", memoryViewers, rss/(1<<20), used/(1<<20))
	}
	return []*figure{resident, inUse}, nil
}

func memoryOnce(ctx context.Context, bin string) (rss, used float64, err error) {
	stack, stop, err := startStack(bin)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	alice := stack.Ready.User("alice")
	grant, err := alice.Grant(ctx, stack.Ready.SessionID)
	if err != nil {
		return 0, 0, err
	}
	first, err := watchRelay(ctx, stack, alice, grant, stack.Ready.PTYID) // what a hub takes isn't a viewer's
	if err != nil {
		return 0, 0, err
	}
	defer first.close()
	relay := stack.Ready.Relays[0]
	rss0, used0, err := memoryOf(relay.PID, relay.AdminURL)
	if err != nil {
		return 0, 0, err
	}
	for range memoryViewers {
		w, err := watchRelay(ctx, stack, alice, grant, stack.Ready.PTYID)
		if err != nil {
			return 0, 0, err
		}
		defer w.close()
	}
	time.Sleep(2 * time.Second) // presence is told at most once a second
	rss1, used1, err := memoryOf(relay.PID, relay.AdminURL)
	return rss1 - rss0, used1 - used0, err
}

// memoryOf returns a process's anonymous resident memory and what its Go heap
// and stacks use after a garbage collection, in bytes.
func memoryOf(pid int, adminURL string) (rss, used float64, err error) {
	resp, err := http.Get(adminURL + "/debug/pprof/heap?gc=1")
	if err != nil {
		return 0, 0, err
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp, err = http.Get(adminURL + "/metrics"); err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if name == "go_memstats_heap_inuse_bytes" || name == "go_memstats_stack_inuse_bytes" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, 0, err
			}
			used += n
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "RssAnon:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib * 1024, used, err
		}
	}
	return 0, 0, fmt.Errorf("no RssAnon of process %d", pid)
}
