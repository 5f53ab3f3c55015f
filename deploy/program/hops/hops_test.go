package hops

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A file holds the latest passings in order, also when its ring has gone round.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	began := time.Unix(1_800_000_000, 0)
	write := func(name string, n int) {
		data := make([]byte, fileBytes)
		binary.LittleEndian.PutUint64(data, uint64(n))
		for i := range n {
			at := uint64(began.UnixNano())/uint64(unit) + uint64(i)
			binary.LittleEndian.PutUint64(data[8+8*(i%capacity):], uint64(PacketIn)<<timeBits|at)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("relay.7.hops", capacity+5)
	write("sandbox-agent.8.hops", 2)
	all, err := Read(dir, "relay")
	if err != nil || len(all) != capacity {
		t.Fatalf("%d passings, %v", len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b Passing) int { return a.At.Compare(b.At) }) || !all[0].At.Equal(began.Add(5*unit)) {
		t.Errorf("begins at %v", all[0].At)
	}
	if all, err := Read(dir, "sandbox-agent"); err != nil || len(all) != 2 || all[1].Place != PacketIn {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := Read(dir, "controlplane"); err == nil {
		t.Error("a program without a file")
	}
}

// What is cut, or was just begun, holds nothing.
func TestNothing(t *testing.T) {
	for _, data := range [][]byte{nil, make([]byte, 8), make([]byte, fileBytes)} {
		if all := decode(data); len(all) != 0 {
			t.Errorf("%d bytes hold %v", len(data), all)
		}
	}
	for p := Place(0); p < places+1; p++ {
		if p.String() == "" {
			t.Errorf("place %d has no name", p)
		}
	}
}
