// Package ring numbers values and holds the newest ones, within a bound of their
// number and one of their bytes.
package ring

import "slices"

// A Ring holds values. Numbers rise by one and never fall, whatever is dropped. It
// is not safe for concurrent use.
type Ring[T any] struct {
	next            uint64
	held            []item[T]
	bytes           int
	values, maximum int
}

type item[T any] struct {
	number uint64
	size   int
	value  T
}

// New returns a Ring of at most so many values and bytes, whose first value gets
// the number next.
func New[T any](next uint64, values, bytes int) *Ring[T] {
	return &Ring[T]{next: next, values: values, maximum: bytes}
}

// Next returns the number of the next value.
func (r *Ring[T]) Next() uint64 { return r.next }

// First returns the number of the oldest value held, Next if there is none.
func (r *Ring[T]) First() uint64 {
	if len(r.held) == 0 {
		return r.next
	}
	return r.held[0].number
}

// Len returns how many are held.
func (r *Ring[T]) Len() int { return len(r.held) }

// Add adds a value of so many bytes that make returns, which gets its number. The
// oldest ones give way, but never to nothing: the newest value is held.
func (r *Ring[T]) Add(size int, make func(number uint64) T) T {
	v := make(r.next)
	r.held = append(r.held, item[T]{r.next, size, v})
	r.next++
	r.bytes += size
	drop := 0
	for len(r.held)-drop > 1 && (len(r.held)-drop > r.values || r.bytes > r.maximum) {
		r.bytes -= r.held[drop].size
		drop++
	}
	r.held = slices.Delete(r.held, 0, drop)
	return v
}

// Put adds a value of so many bytes that had its number before: one that is above
// all others. What comes next has a higher one.
func (r *Ring[T]) Put(number uint64, size int, v T) {
	next := r.next
	r.next = number
	r.Add(size, func(uint64) T { return v })
	r.next = max(next, r.next)
}

// From returns the values from a number on, the oldest first.
func (r *Ring[T]) From(number uint64) []T {
	at, _ := slices.BinarySearchFunc(r.held, number, func(i item[T], n uint64) int {
		switch {
		case i.number < n:
			return -1
		case i.number > n:
			return 1
		}
		return 0
	})
	all := make([]T, 0, len(r.held)-at)
	for _, i := range r.held[at:] {
		all = append(all, i.value)
	}
	return all
}

// Drop drops the values of which gone says so.
func (r *Ring[T]) Drop(gone func(T) bool) {
	r.held = slices.DeleteFunc(r.held, func(i item[T]) bool {
		if !gone(i.value) {
			return false
		}
		r.bytes -= i.size
		return true
	})
}
