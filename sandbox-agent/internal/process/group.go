package process

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// maxLooks bounds the scans: a program that forks faster can't be stopped.
const maxLooks = 1000

// errEscapes says that a program forks faster than it can be stopped.
var errEscapes = errors.New("process: something of the program is still running")

// A Group is a program and everything it started: its session, their
// descendants, the descendants' sessions, and every process that bears its
// mark. It misses a process that leaves its session and its parent before the
// first scan and also clears its environment, changes its user, or hides its
// environment from this process. A Group is safe for concurrent use.
type Group struct {
	// Static after construction.
	leader int  // pid of the program, which leads a session
	mark   Mark // the program was started with it

	mu       sync.Mutex
	sessions map[int]struct{} // guarded by mu: sessions of descendants, besides the leader's
}

// NewGroup returns the group of the program leader, which leads a session and
// was started with mark.
func NewGroup(leader int, mark Mark) *Group {
	return &Group{leader: leader, mark: mark, sessions: make(map[int]struct{})}
}

// members returns the group's processes.
func (g *Group) members() []Stat { return g.among(machine.ask()) }

// Left returns how many processes the group has, for who has time: many who ask at
// about the same time cost as little as one.
func (g *Group) Left() int { return len(g.among(machine.askGently())) }

// among returns the group's processes and records their sessions: an orphaned
// child is found by its session alone.
func (g *Group) among(now *look) []Stat {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := make(map[int]struct{})
	var found []Stat
	add := func(all []Stat) {
		for _, s := range all {
			if _, yes := known[s.PID]; !yes {
				known[s.PID] = struct{}{}
				found = append(found, s)
			}
		}
	}
	add(now.sessions[g.leader])
	for session := range g.sessions {
		add(now.sessions[session])
	}
	add(now.bearing(g.mark))
	clear(g.sessions)
	for i := 0; i < len(found); i++ {
		g.sessions[found[i].Session] = struct{}{}
		add(now.children[found[i].PID])
	}
	return found
}

// Signal sends sig to the whole group and returns the number of processes.
func (g *Group) Signal(sig syscall.Signal) int {
	n := 0
	for _, s := range g.members() {
		if g.send(sig, s) {
			n++
		}
	}
	return n
}

func (g *Group) send(sig syscall.Signal, s Stat) bool {
	return send(sig, s, func(again Stat) bool { return again.started == s.started })
}

// Pause stops the whole group with SIGSTOP, processes forked meanwhile
// included: it returns when two scans, lookAgain apart, found nothing that
// runs. If the group forks faster than that, it fails and part of the group is
// stopped.
func (g *Group) Pause() error {
	quiet := 0
	for range maxLooks {
		running := 0
		for _, s := range g.members() {
			if !s.stopped() {
				running++
				g.send(syscall.SIGSTOP, s)
			}
		}
		if running > 0 {
			quiet = 0
		} else if quiet++; quiet == 2 {
			return nil
		}
		// A scan may miss a child whose parent it saw stopped, or a process without
		// an environment because it is in exec.
		time.Sleep(lookAgain)
	}
	return errEscapes
}

// Continue continues the whole group with SIGCONT, each process once: one that
// stops again by itself, say because it reads in the background, stays stopped.
// A process that seems to run gets the signal too: while its threads stop one
// by one, Linux shows neither a pending signal nor a stopped process.
func (g *Group) Continue() {
	type id struct {
		pid     int
		started uint64
	}
	told := make(map[id]struct{})
	for look := range maxLooks {
		fresh := false
		for _, s := range g.members() {
			who := id{s.PID, s.started}
			if _, before := told[who]; before || look > 0 && !s.stopped() {
				continue
			}
			told[who] = struct{}{}
			fresh = g.send(syscall.SIGCONT, s) || fresh
		}
		if !fresh {
			return
		}
	}
}
