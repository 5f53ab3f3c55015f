package integrations

import "sync"

// keyedLocks are locks by name; one that nobody has takes no memory.
type keyedLocks struct {
	mu   sync.Mutex
	held map[string]*keyedLock // guarded by mu
}

type keyedLock struct {
	turn  chan struct{} // 1: whoever has put an element in has the lock
	users int           // guarded by keyedLocks.mu
}

// lock waits for the lock of a name until done, and returns what gives it back;
// nil when it was given up.
func (k *keyedLocks) lock(done <-chan struct{}, name string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = make(map[string]*keyedLock)
	}
	l := k.held[name]
	if l == nil {
		l = &keyedLock{turn: make(chan struct{}, 1)}
		k.held[name] = l
	}
	l.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.held, name)
		}
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; leave() }
	case <-done:
		leave()
		return nil
	}
}
