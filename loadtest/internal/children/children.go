// Package children ends the processes that this one has started, and those that
// they have.
package children

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lookEvery is the time between two looks at what is still there.
const lookEvery = 20 * time.Millisecond

// A process is one for good: pids come again.
type process struct {
	pid     int
	started string // in clock ticks after boot
}

// End sends SIGTERM to every process that descends from this one, and SIGKILL to
// those that are there after grace. It returns when all have ended, at the latest
// after within, and says whether they have. One that was orphaned before the call
// isn't known; one that is orphaned meanwhile is.
func End(grace, within time.Duration) bool {
	begun := time.Now()
	told := make(map[process]bool)
	for {
		alive := descendants(os.Getpid(), told)
		if len(alive) == 0 {
			return true
		}
		took := time.Since(begun)
		if took > within {
			return false
		}
		for _, p := range alive {
			// It fails for one that has just ended, or isn't ours to end.
			switch {
			case took >= grace:
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			case !told[p]:
				_ = syscall.Kill(p.pid, syscall.SIGTERM)
			}
			told[p] = true
		}
		time.Sleep(lookEvery)
	}
}

// descendants returns what runs of the processes below root and below those that
// are known already.
func descendants(root int, known map[process]bool) []process {
	type entry struct {
		process
		parent int
		over   bool
	}
	var all []entry
	ours := map[int]bool{root: true}
	for _, pid := range pids() {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue // it has just ended
		}
		// The name in parentheses may hold anything, so fields count from its end.
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		const state, parent, started = 0, 1, 19
		if len(fields) <= started {
			continue
		}
		e := entry{process: process{pid, fields[started]}, over: fields[state] == "Z" || fields[state] == "X"}
		if e.parent, err = strconv.Atoi(fields[parent]); err != nil {
			continue
		}
		if known[e.process] {
			ours[pid] = true
		}
		all = append(all, e)
	}
	for grown := true; grown; { // a child's pid may be lower than its parent's
		grown = false
		for _, e := range all {
			if ours[e.parent] && !ours[e.pid] {
				ours[e.pid], grown = true, true
			}
		}
	}
	var alive []process
	for _, e := range all {
		if ours[e.pid] && e.pid != root && !e.over {
			alive = append(alive, e.process)
		}
	}
	return alive
}

// pids returns the processes of this machine.
func pids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all
}
