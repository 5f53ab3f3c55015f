// Package hops notes when a key and its echo pass each place on their way, in
// programs that were built with the tag hops.
//
// In all others [Pass] is empty, and the compiler leaves it out. With the tag, and
// where the environment names a directory, a program notes each passing in a file
// there that is mapped into its memory: no lock, no system call but the clock's, so
// that what is measured stays what it was. Who reads the files tells the passings of
// one key from those of the next by typing one at a time.
package hops

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Variable names the directory in the environment of a program. It has no prefix of
// ours: devstack lets none through.
const Variable = "HOPS_DIR"

// A Place is one that a key or its echo passes in a program.
type Place uint8

// Places, from the outside inwards and back.
const (
	SocketIn    Place = 1 + iota // a browser's frame was read
	StreamOut                    // a frame is handed to the tunnel
	PacketOut                    // a datagram is handed to the kernel
	PacketIn                     // datagrams came from the kernel
	StreamIn                     // a frame was read from the tunnel
	TerminalIn                   // input is written to a terminal
	TerminalOut                  // output was read from a terminal
	SocketOut                    // output is handed to the kernel for a browser
	places                       // how many there are, and one
)

var names = [places]string{
	SocketIn: "socket in", StreamOut: "stream out", PacketOut: "packet out", PacketIn: "packet in", StreamIn: "stream in",
	TerminalIn: "terminal in", TerminalOut: "terminal out", SocketOut: "socket out",
}

// String returns a name to read.
func (p Place) String() string {
	if p == 0 || p >= places {
		return fmt.Sprintf("place %d", uint8(p))
	}
	return names[p]
}

// A file is a header, the number of passings so far, and the latest of them in a
// ring. All numbers are little-endian and of 8 bytes: a passing is the time since
// 1970 in units of 100 ns, with the place in the uppermost byte, which such times
// leave free until the year 2198.
const (
	capacity  = 1 << 16 // passings
	fileBytes = 8 + 8*capacity
	timeBits  = 56
	unit      = 100 * time.Nanosecond
)

// nameOf returns the name of the file of this program.
func nameOf(program string, pid int) string { return fmt.Sprintf("%s.%d.hops", program, pid) }

// A Passing is one of a place.
type Passing struct {
	Place Place
	At    time.Time
}

// Read returns the latest passings, at most 65,536 of each program, that programs of
// a name have noted in a directory, in the order in which each has noted them. It
// fails if there are none: then no such program was built with the tag.
func Read(dir, program string) ([]Passing, error) {
	files, err := filepath.Glob(filepath.Join(dir, strings.ReplaceAll(nameOf(program, 0), "0", "*")))
	if err != nil {
		return nil, err
	}
	var all []Passing
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, decode(data)...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s noted no hops: was it built with -tags hops?", program)
	}
	return all, nil
}

// decode returns what a file holds. One that is too short, or was just begun, holds
// nothing.
func decode(data []byte) []Passing {
	if len(data) != fileBytes {
		return nil
	}
	total := binary.LittleEndian.Uint64(data)
	kept := min(total, capacity)
	all := make([]Passing, 0, kept)
	for i := total - kept; i < total; i++ {
		word := binary.LittleEndian.Uint64(data[8+8*(i%capacity):])
		if word == 0 {
			continue // counted, and not yet written
		}
		all = append(all, Passing{Place(word >> timeBits), time.Unix(0, int64(word&(1<<timeBits-1))*int64(unit))})
	}
	return all
}
