package chatapi

import (
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// maxWeight bounds the frames of one person's requests that wait or are under way,
// in bytes.
const maxWeight = 8 << 20

// weights are what the requests of each person weigh. The zero value is ready.
type weights struct {
	mu sync.Mutex
	of map[protocol.UserID]int // guarded by mu
}

// add adds n bytes, unless that is too much.
func (w *weights) add(user protocol.UserID, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[user]+n > maxWeight {
		return false
	}
	if w.of == nil {
		w.of = map[protocol.UserID]int{}
	}
	w.of[user] += n
	return true
}

// remove removes n bytes that were added.
func (w *weights) remove(user protocol.UserID, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[user] -= n; w.of[user] <= 0 {
		delete(w.of, user)
	}
}
