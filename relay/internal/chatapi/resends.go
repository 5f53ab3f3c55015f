package chatapi

import (
	"strconv"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// Bounds of the messages that are remembered, of one person and of all. Whoever is
// beyond one has the own ones forgotten, and while there are too many no new one is
// remembered.
const (
	maxResendsOfPerson = 1 << 10
	maxResends         = 16 << 10
)

// resends are the messages with names of their own that were sent from here, by the
// idempotency keys of their first commands, with how often the sandbox has refused
// each. A command that was refused stays so: the message goes by another one when
// it is sent again. A command that may have run has no successor, so at most one
// of a message's commands runs. The zero value is ready.
type resends struct {
	mu sync.Mutex
	// Guarded by mu.
	of  map[protocol.UserID]map[string]int // by person and key
	all int                                // how many there are
}

// knows reports whether a message of a person was sent from here.
func (n *resends) knows(person protocol.UserID, key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, known := n.of[person][key]
	return known
}

// sends notes that a message is sent.
func (n *resends) sends(person protocol.UserID, key string) { n.raise(person, key, 0) }

// refused notes that the sandbox has refused a message's command, which was its
// try-th, from 0.
func (n *resends) refused(person protocol.UserID, key string, try int) {
	n.raise(person, key, try+1)
}

func (n *resends) raise(person protocol.UserID, key string, tries int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = map[protocol.UserID]map[string]int{}
	}
	own := n.of[person]
	if _, known := own[key]; !known && (len(own) >= maxResendsOfPerson || n.all >= maxResends) {
		n.all -= len(own)
		delete(n.of, person)
		if own = nil; n.all >= maxResends {
			return
		}
	}
	if own == nil {
		own = map[string]int{}
		n.of[person] = own
	}
	before, known := own[key]
	if own[key] = max(before, tries); !known {
		n.all++
	}
}

// next returns which try of a message is the next one, and the key of its command.
func (n *resends) next(person protocol.UserID, key string) (try int, command string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if try = n.of[person][key]; try == 0 {
		return 0, key
	}
	return try, key + "-" + strconv.Itoa(try)
}
