package cookies

import (
	"errors"
	"io"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// firstBytes is for how much of a body there is room before any of it has come, and
// secondBytes before that much has: who says that it is long has to send it.
const (
	firstBytes  = 64 << 10
	secondBytes = 1 << 20
)

// A budget bounds the bytes of bodies that are in memory at once: all of them
// together, and those for one address, so that nobody who knows an address takes the
// room of all others.
type budget struct {
	total, each int64

	mu sync.Mutex
	// Guarded by mu.
	used  int64
	under map[string]int64 // by address
}

// take takes n bytes for an address, or says that there is no room.
func (b *budget) take(address string, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.total || b.under[address]+n > b.each {
		return protocol.Errorf(protocol.KindTooMany, "too many envelopes at the same time: try again soon")
	}
	b.used += n
	b.under[address] += n
	return nil
}

// give gives them back.
func (b *budget) give(address string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.under[address] -= n; b.under[address] == 0 {
		delete(b.under, address)
	}
}

// A body is read into memory that a budget has.
type body struct {
	budget  *budget
	address string
	bytes   []byte
	taken   int64
}

// release gives the room back. The bytes are of no use then.
func (b *body) release() {
	b.budget.give(b.address, b.taken)
	b.bytes, b.taken = nil, 0
}

// read reads all of r, of which length bytes were announced (−1: none were). It fails
// with KindTooLarge beyond limit, KindTooMany without room, and KindInvalid if r ends
// early. The body has to be released whatever it says.
func (b *body) read(r io.Reader, length, limit int64) error {
	if length > limit {
		return tooLarge(limit)
	}
	most := limit + 1 // the one more tells a body that is too long
	if length >= 0 {
		most = length
	}
	for {
		if err := b.fill(r); err != nil {
			if !errors.Is(err, io.EOF) || length > int64(len(b.bytes)) {
				return protocol.Errorf(protocol.KindInvalid, "the body was cut")
			}
			length = int64(len(b.bytes))
		}
		switch have := int64(len(b.bytes)); {
		case have > limit:
			return tooLarge(limit)
		case length >= 0 && have == length:
			return nil
		}
		if err := b.grow(most, length >= 0); err != nil {
			return err
		}
	}
}

// fill reads until there is no room. It fails with io.EOF where r ends.
func (b *body) fill(r io.Reader) error {
	for len(b.bytes) < cap(b.bytes) {
		n, err := r.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if err != nil {
			return err
		}
	}
	return nil
}

// grow makes room for more of at most so many bytes; said: they were announced, and
// there is room for all of them once some have come.
func (b *body) grow(most int64, said bool) error {
	next := int64(cap(b.bytes)) * 2
	switch {
	case next == 0:
		next = firstBytes
	case next <= secondBytes:
		next = secondBytes
	case said:
		next = most
	}
	next = min(next, most)
	if err := b.budget.take(b.address, next-b.taken); err != nil {
		return err
	}
	b.taken = next
	larger := make([]byte, len(b.bytes), next)
	copy(larger, b.bytes)
	b.bytes = larger
	return nil
}

func tooLarge(limit int64) error {
	return protocol.Errorf(protocol.KindTooLarge, "an envelope has at most %d bytes", limit)
}
