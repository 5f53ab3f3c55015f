package standin

import (
	"encoding/json"
	"sync"
)

// questions are those that a program has asked and nobody has answered. The zero
// value has none. It is safe for concurrent use.
type questions struct {
	mu sync.Mutex
	// Guarded by mu.
	answers map[string]chan json.RawMessage // by id; a closed one has no answer
	closed  bool                            // nothing is answered any more
}

// open makes a question whose answer comes from the channel, which is closed if
// there is none.
func (q *questions) open(id string) <-chan json.RawMessage {
	answer := make(chan json.RawMessage, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		close(answer)
		return answer
	}
	if q.answers == nil {
		q.answers = make(map[string]chan json.RawMessage)
	}
	q.answers[id] = answer
	return answer
}

// forget reports whether a question was still open, which it isn't any more.
func (q *questions) forget(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, open := q.answers[id]
	delete(q.answers, id)
	return open
}

// answer gives a question its answer, if it is open.
func (q *questions) answer(id string, said json.RawMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if answer := q.answers[id]; answer != nil {
		answer <- said
		delete(q.answers, id)
	}
}

// close leaves all questions without an answer, also later ones.
func (q *questions) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, answer := range q.answers {
		close(answer)
	}
	clear(q.answers)
}
