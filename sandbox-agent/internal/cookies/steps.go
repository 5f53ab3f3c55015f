package cookies

import "runtime"

// perTurn is how many cookies are worked on before others have the processor: each
// takes some 30 µs.
const perTurn = 8

// steps are of work on one cookie after the other. They are [seal.Steps].
type steps int

// Next lets others have the processor now and then.
func (s *steps) Next() {
	if *s++; *s%perTurn == 0 {
		runtime.Gosched()
	}
}
