package feed

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// keyframeBytes bounds the keyframes' share of the memory for rings.
	keyframeBytes = protocol.RelayRingBytes / 4
	// memoryStep is the unit in which rings yield memory to keyframes.
	memoryStep = 16 << 20
)

// A Memory limits the keyframes of all hubs. Cached ones are evicted oldest
// first. Of the others one sandbox may have as much as is still free, so that
// each new sandbox finds some, however many take all they can get.
type Memory struct {
	// Static after construction.
	stepped func() // tells the rings that their share has changed

	// Guarded by mu, which is taken last of all.
	mu     sync.Mutex
	held   int
	of     map[protocol.SandboxID]int
	cached list.List // of cacheds, oldest first
}

// A cached is a keyframe in a feed's cache.
type cached struct {
	feed *Feed
	kf   *Keyframe
}

// NewMemory returns the memory of a relay. stepped is called when the rings'
// share changes.
func NewMemory(stepped func()) *Memory {
	return &Memory{stepped: stepped, of: map[protocol.SandboxID]int{}}
}

// take reserves n bytes for a sandbox. It evicts cached keyframes, and reports
// false if that is not enough. The caller holds no feed.
func (m *Memory) take(sandbox protocol.SandboxID, n int) bool {
	for {
		m.mu.Lock()
		if m.of[sandbox]+n <= keyframeBytes-m.held {
			m.change(sandbox, n)
			return true
		}
		oldest := m.oldest(sandbox)
		m.mu.Unlock()
		if oldest == nil {
			return false
		}
		oldest.feed.evict(oldest.kf)
	}
}

// oldest returns the keyframe to evict: the sandbox's own oldest, if any. nil:
// there is none at all. The caller holds mu.
func (m *Memory) oldest(sandbox protocol.SandboxID) *cached {
	for e := m.cached.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*cached); c.feed.sandbox == sandbox {
			return c
		}
	}
	if e := m.cached.Front(); e != nil {
		return e.Value.(*cached)
	}
	return nil
}

// keep notes that c is cached; forget undoes that.
func (m *Memory) keep(c *cached) *list.Element {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cached.PushBack(c)
}

func (m *Memory) forget(e *list.Element) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cached.Remove(e)
}

// add changes a sandbox's use by n bytes, which may be negative.
func (m *Memory) add(sandbox protocol.SandboxID, n int) {
	m.mu.Lock()
	m.change(sandbox, n)
}

// change is add for a caller that holds mu, which it gives up.
func (m *Memory) change(sandbox protocol.SandboxID, n int) {
	before := m.room()
	m.held += n
	if m.of[sandbox] += n; m.of[sandbox] == 0 {
		delete(m.of, sandbox)
	}
	stepped := m.room() != before
	m.mu.Unlock()
	if stepped && m.stepped != nil {
		m.stepped()
	}
}

// room returns the keyframes' share of the rings' memory. The caller holds mu.
func (m *Memory) room() int { return (m.held + memoryStep - 1) / memoryStep * memoryStep }

// Held returns what keyframes take, in bytes.
func (m *Memory) Held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// Left returns what is left for rings.
func (m *Memory) Left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return protocol.RelayRingBytes - m.room()
}

// A charge is the memory of one keyframe. It counts as long as anybody
// references the keyframe: the feed, or a viewer that has not written it yet.
type charge struct {
	// Static after construction; no memory: it costs nothing.
	memory  *Memory
	sandbox protocol.SandboxID
	bytes   int

	holders atomic.Int32
}

func (c *charge) hold() {
	if c != nil && c.holders.Add(1) == 1 {
		c.memory.add(c.sandbox, c.bytes)
	}
}

func (c *charge) release() {
	if c != nil && c.holders.Add(-1) == 0 {
		c.memory.add(c.sandbox, -c.bytes)
	}
}
