package measure

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Machine is where a load test ran. It holds no name and no address.
type Machine struct {
	Model       string  `json:"model,omitempty"` // of the processor
	Cores       int     `json:"cores"`
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	Kernel      string  `json:"kernel,omitempty"`
	System      string  `json:"system"` // "linux/amd64"
	Go          string  `json:"go"`
	Load        float64 `json:"load"` // of the minute before the start
}

// ReadMachine returns what this machine is, and its load now. Call it before
// the load is made.
func ReadMachine() Machine {
	m := Machine{
		Cores:  runtime.NumCPU(),
		System: runtime.GOOS + "/" + runtime.GOARCH,
		Go:     runtime.Version(),
		Model:  field("/proc/cpuinfo", "model name"),
	}
	if kib, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		m.MemoryBytes = kib << 10
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		m.Load, _ = strconv.ParseFloat(first, 64)
	}
	return m
}

// field returns the first value of key in a file of "key : value" lines.
func field(file, key string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
