// Package usage reads what the processes of a deployment use.
package usage

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// settleTimeout bounds what [Settled] asks of an admin listener.
const settleTimeout = 10 * time.Second

// CPU begins to count the processor time of all threads of processes. The
// function that it returns says how much it was since then; ok is false when
// that of one process isn't known.
func CPU(pids ...int) func() (used time.Duration, ok bool) {
	before, known := cpuTime(pids)
	return func() (time.Duration, bool) {
		after, ok := cpuTime(pids)
		return after - before, ok && known
	}
}

func cpuTime(pids []int) (total time.Duration, ok bool) {
	for _, pid := range pids {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if pid == 0 || err != nil || len(files) == 0 {
			return 0, false
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has just ended
			}
			running, _, _ := strings.Cut(string(data), " ")
			n, err := strconv.ParseInt(running, 10, 64)
			if err != nil {
				return 0, false
			}
			total += time.Duration(n)
		}
	}
	return total, len(pids) > 0
}

// Memory returns the resident memory of processes in bytes, 0 when it isn't
// known.
func Memory(pids ...int) (total float64) {
	for _, pid := range pids {
		r, err := measure.ReadProcess(pid)
		if err != nil {
			return 0
		}
		total += float64(r.RSSBytes)
	}
	return total
}

// Settled returns what a process uses, after a collection of its heap when it
// has an admin listener. One of pid and admin must be known (not 0, not empty).
func Settled(ctx context.Context, pid int, admin string) (r measure.Resource, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if admin != "" {
		// A profile of the heap is taken after a collection. Two, since what has
		// a finalizer goes with the second.
		for range 2 {
			resp, err := get(ctx, admin+"/debug/pprof/heap?gc=1")
			if err != nil {
				return r, fmt.Errorf("collecting the relay's heap: %w", err)
			}
			resp.Body.Close()
		}
	}
	if pid != 0 {
		if r, err = measure.ReadProcess(pid); err != nil {
			return r, err
		}
	}
	if admin == "" {
		return r, nil
	}
	return r, r.ReadMetrics(ctx, http.DefaultClient, admin)
}

// Tunnels returns how many tunnels of each carrier a relay has. Carriers without
// any are left out.
func Tunnels(ctx context.Context, admin string) (map[string]int, error) {
	resp, err := get(ctx, admin+"/metrics")
	if err != nil {
		return nil, fmt.Errorf("the relay's metrics: %w", err)
	}
	defer resp.Body.Close()
	tunnels := make(map[string]int)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), `fairlead_tunnels{carrier="`)
		if !ok {
			continue
		}
		carrier, value, _ := strings.Cut(rest, `"} `)
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("the relay's metrics: %w", err)
		}
		if n != 0 {
			tunnels[carrier] = int(n)
		}
	}
	return tunnels, lines.Err()
}

func get(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}
