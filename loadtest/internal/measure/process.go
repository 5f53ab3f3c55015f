package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Resource is what a process uses at one moment. What is not known is 0.
type Resource struct {
	CPUSeconds float64 `json:"cpu_seconds"`          // used since it started
	Started    int64   `json:"started,omitempty"`    // clock ticks after boot; tells restarts
	RSSBytes   int64   `json:"rss_bytes"`            // resident
	FDs        int     `json:"fds,omitempty"`        // open descriptors
	Threads    int     `json:"threads,omitempty"`    // of the operating system
	Goroutines int     `json:"goroutines,omitempty"` // from its metrics
	HeapBytes  int64   `json:"heap_bytes,omitempty"` // in use, from its metrics

	Collections int64 `json:"collections,omitempty"` // of the heap since it started, from its metrics
}

// ticksPerSecond of the times in /proc. Linux has it at 100 on every platform
// that Go runs on.
const ticksPerSecond = 100

// ReadProcess returns what the process of that id uses, from /proc.
func ReadProcess(pid int) (Resource, error) { return readProc(strconv.Itoa(pid)) }

// ReadSelf returns what this process uses.
func ReadSelf() (Resource, error) {
	r, err := readProc("self")
	if err != nil {
		return r, err
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err == nil {
		r.CPUSeconds = time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	}
	r.Goroutines = runtime.NumGoroutine()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	r.HeapBytes = int64(heap[0].Value.Uint64())
	return r, nil
}

// readProc reads /proc/NAME.
func readProc(name string) (Resource, error) {
	stat, err := os.ReadFile("/proc/" + name + "/stat")
	if err != nil {
		return Resource{}, fmt.Errorf("read process: %w", err)
	}
	r, err := parseStat(string(stat))
	if err != nil {
		return Resource{}, fmt.Errorf("read process %s: %w", name, err)
	}
	// The descriptors of another user's process cannot be counted.
	if dir, err := os.Open("/proc/" + name + "/fd"); err == nil {
		names, _ := dir.Readdirnames(-1)
		r.FDs = len(names)
		_ = dir.Close()
	}
	return r, nil
}

// parseStat reads the line of /proc/PID/stat.
func parseStat(line string) (Resource, error) {
	// The name in parentheses may hold anything, so fields count from its end.
	end := strings.LastIndexByte(line, ')')
	if end < 0 {
		return Resource{}, errors.New("stat has no name")
	}
	fields := strings.Fields(line[end+1:])
	const user, system, threads, started, rss = 11, 12, 17, 19, 21
	if len(fields) <= rss {
		return Resource{}, errors.New("stat is too short")
	}
	var n [rss + 1]int64
	for _, i := range []int{user, system, threads, started, rss} {
		v, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Resource{}, fmt.Errorf("stat: %w", err)
		}
		n[i] = v
	}
	return Resource{
		CPUSeconds: float64(n[user]+n[system]) / ticksPerSecond,
		Threads:    int(n[threads]),
		Started:    n[started],
		RSSBytes:   n[rss] * int64(os.Getpagesize()),
	}, nil
}

// maxMetricsBytes bounds what is read of a process's metrics.
const maxMetricsBytes = 8 << 20

// ReadMetrics adds to r what the admin listener at url
// ("http://127.0.0.1:9090") tells at /metrics, as [Resource.ParseMetrics] does.
func (r *Resource) ReadMetrics(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/metrics", nil)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("read metrics: status %d", res.StatusCode)
	}
	return r.ParseMetrics(res.Body)
}

// ParseMetrics adds to r the goroutines, the heap and its collections that a Go
// program tells in the text format of Prometheus, and the descriptors and the
// resident memory if they aren't known yet.
func (r *Resource) ParseMetrics(text io.Reader) error {
	known := *r
	lines := bufio.NewScanner(io.LimitReader(text, maxMetricsBytes))
	for lines.Scan() {
		name, number, _ := strings.Cut(lines.Text(), " ")
		set := r.metric(name, known)
		if set == nil {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return fmt.Errorf("read metrics: %s: %w", name, err)
		}
		set(v)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	return nil
}

// metric returns what takes the metric of that name, nil if nothing does. What
// is known from elsewhere stays.
func (r *Resource) metric(name string, known Resource) func(v float64) {
	switch name {
	case "go_goroutines":
		return func(v float64) { r.Goroutines = int(v) }
	case "go_memstats_heap_inuse_bytes":
		return func(v float64) { r.HeapBytes = int64(v) }
	case "go_gc_duration_seconds_count":
		return func(v float64) { r.Collections = int64(v) }
	case "process_open_fds":
		if known.FDs == 0 {
			return func(v float64) { r.FDs = int(v) }
		}
	case "process_resident_memory_bytes":
		if known.RSSBytes == 0 {
			return func(v float64) { r.RSSBytes = int64(v) }
		}
	}
	return nil
}
