package process

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

const (
	// lookAgain is the time between two looks for processes to stop.
	lookAgain = time.Millisecond
	// maxLooks bounds them: who forks faster than that can't be stopped.
	maxLooks = 1000
)

// errEscapes says that a program forks faster than it can be stopped.
var errEscapes = errors.New("process: something of the program is still running")

// A Group is a program and everything it started: its session, what descends
// from that, the sessions of those, and whoever bears its mark. Beyond reach is
// what leaves its session and its parent before it is ever looked at and also
// clears its environment, becomes another user, or hides its environment from
// this process. A Group is safe for concurrent use.
type Group struct {
	// Static after construction.
	leader int  // pid of the program, which leads a session
	mark   Mark // what it was started with

	mu       sync.Mutex
	sessions map[int]struct{} // guarded by mu: beside the leader's, of descendants
}

// NewGroup returns the group of the program leader, which leads a session of
// its own and was started with mark.
func NewGroup(leader int, mark Mark) *Group {
	return &Group{leader: leader, mark: mark, sessions: make(map[int]struct{})}
}

// members returns the processes of the group, and remembers their sessions: a
// child whose parent has ended is found by its session alone.
func (g *Group) members() []Stat {
	g.mu.Lock()
	defer g.mu.Unlock()
	children := make(map[int][]Stat)
	known := make(map[int]struct{})
	var found []Stat
	add := func(s Stat) {
		if _, yes := known[s.PID]; !yes {
			known[s.PID] = struct{}{}
			found = append(found, s)
		}
	}
	var strangers []Stat // who may bear the mark
	Each(func(s Stat) {
		children[s.Parent] = append(children[s.Parent], s)
		if _, ours := g.sessions[s.Session]; ours || s.Session == g.leader {
			add(s)
		} else if s.UID == g.mark.UID {
			strangers = append(strangers, s)
		}
	})
	g.mark.find(strangers, add)
	clear(g.sessions)
	for i := 0; i < len(found); i++ {
		g.sessions[found[i].Session] = struct{}{}
		for _, child := range children[found[i].PID] {
			add(child)
		}
	}
	return found
}

// Signal sends sig to the whole group and returns to how many processes.
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

// Pause stops the whole group with SIGSTOP. Who is being forked meanwhile is
// stopped, too: Pause returns when two looks, lookAgain apart, found nothing that
// runs.
// It fails when the group forks faster than that; some of it is stopped then.
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
		// A look may miss a child whose parent it saw stopped, or one that has no
		// environment because it is becoming another program.
		time.Sleep(lookAgain)
	}
	return errEscapes
}

// Continue continues the whole group with SIGCONT, each process once: one that
// stops again by itself, say because it reads in the background, stays so. One
// that seems to run is told as well: while its threads stop, one after the other,
// Linux shows neither a signal that waits nor a process that has stopped.
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
