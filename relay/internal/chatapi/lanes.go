package chatapi

import "sync"

// maxWaiting bounds the requests of one socket that wait for the control plane, the
// sandbox or each other.
const maxWaiting = 32

// lanes do a socket's requests. Those of one lane are done one after the other,
// those of several at once. The zero value is ready.
type lanes struct {
	mu sync.Mutex
	// Guarded by mu.
	waiting int                 // in all lanes, those under way included
	of      map[string][]func() // the one under way is first
}

// add has do done after what its lane has to do already. begin starts a lane's
// goroutine, which ends when the lane is empty. It reports false if too much waits,
// or nothing begins any more.
func (l *lanes) add(lane string, do func(), begin func(func()) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting >= maxWaiting {
		return false
	}
	if len(l.of[lane]) == 0 && !begin(func() { l.run(lane) }) {
		return false
	}
	if l.of == nil {
		l.of = map[string][]func(){}
	}
	l.waiting++
	l.of[lane] = append(l.of[lane], do)
	return true
}

// busy reports whether a lane has something to do.
func (l *lanes) busy(lane string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of[lane]) > 0
}

// run does what its lane has to do.
func (l *lanes) run(lane string) {
	for do := l.first(lane); do != nil; do = l.next(lane) {
		do()
	}
}

// first returns what a lane has to do.
func (l *lanes) first(lane string) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[lane][0]
}

// next returns what a lane has to do after what is done, nil for nothing.
func (l *lanes) next(lane string) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
	rest := l.of[lane][1:]
	if len(rest) == 0 {
		delete(l.of, lane)
		return nil
	}
	l.of[lane] = rest
	return rest[0]
}
