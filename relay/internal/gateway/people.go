package gateway

import (
	"errors"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// DefaultSocketsPerPerson is how many terminal sockets one person may have at a
// relay by default.
const DefaultSocketsPerPerson = 256

// ErrTooManySockets says that a person has as many sockets as allowed.
var ErrTooManySockets = protocol.Fault(protocol.KindTooMany, errors.New("the person has too many sockets"))

// A Tally counts the sockets of each person. Its zero value is ready.
type Tally struct {
	mu sync.Mutex
	of map[protocol.UserID]int // guarded by mu
}

// Enter counts one more socket of a person, who may have at most most, or fails
// with ErrTooManySockets. leave may be called more than once.
func (t *Tally) Enter(user protocol.UserID, most int) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[user] >= most {
		return nil, ErrTooManySockets
	}
	if t.of == nil {
		t.of = map[protocol.UserID]int{}
	}
	t.of[user]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.of[user]--; t.of[user] == 0 {
			delete(t.of, user)
		}
	}), nil
}
