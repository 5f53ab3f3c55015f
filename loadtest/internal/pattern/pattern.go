// Package pattern is the output that load tests send through a terminal: a
// stream of numbered chunks that anyone can compute from a few numbers, and a
// check that says of what a viewer received which bytes are missing, doubled or
// wrong.
//
// # The stream
//
// Chunk k is Spec.Chunk bytes of printable ASCII that end in "\r\n". It begins
// with '~' and k in ten digits; the rest is words of lower-case letters made
// from (Seed, k). '~' stands nowhere else, so whoever loses the thread finds it
// again at the next chunk. Byte i of the stream is byte i%Chunk of chunk
// i/Chunk.
//
// Nothing here does I/O or reads a clock.
package pattern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

const (
	// MinChunk and MaxChunk bound Spec.Chunk, in bytes.
	MinChunk = 64
	MaxChunk = 1 << 20
	// MaxChunks bounds Spec.Chunks: ten digits.
	MaxChunks = 9_999_999_999

	mark   = '~'
	digits = 10
	header = 1 + digits
	// syncLen is how much of a chunk tells it from anything else: the header
	// and the first of its letters.
	syncLen = header + 16
)

// A Spec says everything about a stream. It is comparable, and travels as JSON
// or as an order of the source's ([Spec.Order]).
type Spec struct {
	Seed uint64 `json:"seed"`
	// Chunk is the size of a chunk in bytes, line end included, from MinChunk to
	// MaxChunk.
	Chunk int `json:"chunk"`
	// Rate is in chunks per second; 0 means as fast as they are taken.
	Rate float64 `json:"rate"`
	// Burst is how many chunks are due at the same moment; 0 means 1.
	Burst int `json:"burst,omitempty"`
	// Start is when chunk 0 is due.
	Start time.Time `json:"start"`
	// Chunks is how many there are; 0 means without end.
	Chunks int `json:"chunks"`
}

// Validate says what is wrong with s.
func (s Spec) Validate() error {
	switch {
	case s.Chunk < MinChunk || s.Chunk > MaxChunk:
		return fmt.Errorf("a chunk of %d bytes is not from %d to %d", s.Chunk, MinChunk, MaxChunk)
	case s.Rate < 0 || math.IsNaN(s.Rate) || math.IsInf(s.Rate, 0):
		return fmt.Errorf("a rate of %v chunks per second is not one", s.Rate)
	case s.Burst < 0:
		return fmt.Errorf("a burst of %d chunks is not one", s.Burst)
	case s.Chunks < 0 || s.Chunks > MaxChunks:
		return fmt.Errorf("%d chunks are not from 0 to %d", s.Chunks, MaxChunks)
	}
	return nil
}

// Due returns when chunk k is to be written, whether or not the ones before it
// were. With a Rate of 0 all are due at the start.
func (s Spec) Due(k int) time.Time {
	if s.Rate <= 0 {
		return s.Start
	}
	burst := max(s.Burst, 1)
	first := k / burst * burst
	return s.Start.Add(time.Duration(float64(first) / s.Rate * float64(time.Second)))
}

// End returns when the last chunk is due, and false for a stream without end
// or without a rate.
func (s Spec) End() (time.Time, bool) {
	if s.Chunks == 0 || s.Rate <= 0 {
		return time.Time{}, false
	}
	return s.Due(s.Chunks - 1), true
}

// Size returns the length of the whole stream in bytes; 0 for one without end.
func (s Spec) Size() int64 { return int64(s.Chunks) * int64(s.Chunk) }

// limit is the number of the first chunk that there isn't.
func (s Spec) limit() int {
	if s.Chunks == 0 {
		return MaxChunks
	}
	return s.Chunks
}

// letters are what chunks are made of: a space about every sixth, so that a
// chunk looks like words and like no key or token.
const letters = "abcdefghijklmnopqrstuvwxyz      "

// Append appends chunk k to dst.
func (s Spec) Append(dst []byte, k int) []byte {
	dst = append(dst, mark)
	var number [digits]byte
	for i, n := digits-1, k; i >= 0; i, n = i-1, n/10 {
		number[i] = byte('0' + n%10)
	}
	dst = append(dst, number[:]...)
	n := s.Chunk - header - len("\r\n")
	source := rand.NewPCG(s.Seed, uint64(k))
	var random [8]byte
	for ; n > 0; n -= len(random) {
		binary.LittleEndian.PutUint64(random[:], source.Uint64())
		for i := range random {
			random[i] = letters[random[i]&31]
		}
		dst = append(dst, random[:min(n, len(random))]...)
	}
	return append(dst, '\r', '\n')
}

// Order returns s as a line for the source, without the line end.
func (s Spec) Order() string {
	return fmt.Sprintf("go %d %d %s %d %d %d", s.Seed, s.Chunk,
		strconv.FormatFloat(s.Rate, 'g', -1, 64), max(s.Burst, 1), s.Start.UnixMicro(), s.Chunks)
}

var errOrder = errors.New("want: go SEED CHUNK RATE BURST START_MICROS CHUNKS")

// ParseOrder is the reverse of [Spec.Order]. The start is in microseconds since
// 1970.
func ParseOrder(line string) (Spec, error) {
	fields := strings.Fields(line)
	if len(fields) != 7 || fields[0] != "go" {
		return Spec{}, errOrder
	}
	seed, err1 := strconv.ParseUint(fields[1], 10, 64)
	chunk, err2 := strconv.Atoi(fields[2])
	rate, err3 := strconv.ParseFloat(fields[3], 64)
	burst, err4 := strconv.Atoi(fields[4])
	start, err5 := strconv.ParseInt(fields[5], 10, 64)
	chunks, err6 := strconv.Atoi(fields[6])
	if errors.Join(err1, err2, err3, err4, err5, err6) != nil {
		return Spec{}, errOrder
	}
	s := Spec{Seed: seed, Chunk: chunk, Rate: rate, Burst: burst, Start: time.UnixMicro(start), Chunks: chunks}
	return s, s.Validate()
}
