package process

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// walkAtOnce is how many processes are read before other goroutines get their turn.
const walkAtOnce = 8

// restFor is how many times longer than a walk the machine rests before a walk for
// those who have time.
const restFor = 4

// A lookout walks through the machine's processes for whoever asks. The zero value
// is ready. It is safe for concurrent use.
type lookout struct {
	walking sync.Mutex // held during a walk: two at once would take as long as two

	mu sync.Mutex
	// Guarded by mu.
	next  *look     // the walk that hasn't begun and is asked for; nil: none is
	rests time.Time // until then, after the last walk
}

// machine is the one lookout: there is one /proc. When hundreds of programs end
// at once, each asks several times, and a walk takes milliseconds.
var machine lookout

// ask returns what a walk finds that begins after the call. Those who ask while
// another walk is under way share the next one.
func (o *lookout) ask() *look {
	o.mu.Lock()
	mine := o.join()
	mine.urgent = true
	o.mu.Unlock()
	o.await(mine)
	return mine
}

// askGently is ask for who has time: walks for those take a part of the time only.
func (o *lookout) askGently() *look {
	for {
		o.mu.Lock()
		wait := time.Until(o.rests)
		if wait <= 0 || o.next != nil {
			mine := o.join()
			o.mu.Unlock()
			o.await(mine)
			return mine
		}
		o.mu.Unlock()
		time.Sleep(wait)
	}
}

// join returns the walk that hasn't begun. It is called with mu held.
func (o *lookout) join() *look {
	if o.next == nil {
		o.next = &look{}
	}
	return o.next
}

// await returns when a walk is over.
func (o *lookout) await(mine *look) {
	mine.once.Do(func() {
		o.walking.Lock()
		defer o.walking.Unlock()
		runtime.Gosched() // who was woken with us asks, too
		o.mu.Lock()
		o.next = nil // who asks from now on may ask about what begins from now on
		urgent := mine.urgent
		o.mu.Unlock()
		began := time.Now()
		mine.walk(!urgent)
		ended := time.Now()
		o.mu.Lock()
		o.rests = ended.Add(restFor * ended.Sub(began))
		o.mu.Unlock()
	})
}

// A look is what a walk has found. Its methods are safe for concurrent use.
type look struct {
	once sync.Once // the walk

	urgent bool // somebody has no time; guarded by the lookout's mu

	// Static after the walk.
	all                []Stat // no zombies
	children, sessions map[int][]Stat

	mu      sync.Mutex
	bearers map[user]map[string][]Stat // guarded by mu: who bears an entry, once anybody has asked for a user's
}

// walk walks through /proc. Gently: other goroutines get their turn in between.
func (l *look) walk(gently bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return // no /proc: nothing can be found
	}
	var r reader
	l.all = make([]Stat, 0, len(entries))
	l.children, l.sessions = make(map[int][]Stat), make(map[int][]Stat)
	for i, entry := range entries {
		if gently && i%walkAtOnce == 0 {
			runtime.Gosched()
		}
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, ok := r.read(pid); ok && !s.zombie() {
			l.all = append(l.all, s)
			l.children[s.Parent] = append(l.children[s.Parent], s)
			l.sessions[s.Session] = append(l.sessions[s.Session], s)
		}
	}
}

// bearing returns the processes that bear m. Each environment of a user is read
// once for all who ask.
func (l *look) bearing(m Mark) []Stat {
	if m.entry == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	who := user{m.UID, m.GID}
	found, ok := l.bearers[who]
	if !ok {
		var among []Stat
		for _, s := range l.all {
			if s.UID == m.UID {
				among = append(among, s)
			}
		}
		found = readMarks(who, among)
		if l.bearers == nil {
			l.bearers = make(map[user]map[string][]Stat)
		}
		l.bearers[who] = found
	}
	return found[m.entry]
}

// Each calls fn for every process that is not a zombie.
func Each(fn func(Stat)) {
	for _, s := range machine.ask().all {
		fn(s)
	}
}

// Signal sends sig to every process that match accepts and returns their
// number. It never signals this process or process 1.
func Signal(sig syscall.Signal, match func(Stat) bool) int {
	n := 0
	Each(func(s Stat) {
		if match(s) && send(sig, s, match) {
			n++
		}
	})
	return n
}

// Signal sends sig to all that bears m, and returns the number of processes.
func (m Mark) Signal(sig syscall.Signal) int {
	n := 0
	for _, s := range machine.ask().bearing(m) {
		if send(sig, s, func(again Stat) bool { return again.started == s.started }) {
			n++
		}
	}
	return n
}
