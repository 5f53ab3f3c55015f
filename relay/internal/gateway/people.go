package gateway

import (
	"errors"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// DefaultSocketsPerPerson is how many terminal sockets one person may have at a
// relay by default.
const DefaultSocketsPerPerson = 256

// errCrowded says that a person has as many sockets as allowed.
var errCrowded = protocol.Fault(protocol.KindTooMany, errors.New("the person has too many sockets"))

// A crowd counts the sockets of each person. Its zero value is ready.
type crowd struct {
	mu sync.Mutex
	of map[protocol.UserID]int // guarded by mu
}

// enter counts one more socket of a person, who may have at most most, or fails
// with errCrowded. leave may be called more than once.
func (c *crowd) enter(user protocol.UserID, most int) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[user] >= most {
		return nil, errCrowded
	}
	if c.of == nil {
		c.of = map[protocol.UserID]int{}
	}
	c.of[user]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.of[user]--; c.of[user] == 0 {
			delete(c.of, user)
		}
	}), nil
}
