package spill

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// BenchmarkAppend appends chunks to a log that is as large as it gets.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{64, 4 << 10, protocol.MaxDataBytes, 256 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f, head := filled(b)
			p := stream(0, uint64(n))
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				f.Append(head, p)
				head += uint64(n)
			}
			if f.Head() != head {
				b.Fatalf("the head is %d, want %d", f.Head(), head)
			}
		})
	}
}

// BenchmarkRead reads a log from its oldest byte on, and again.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{4 << 10, protocol.MaxDataBytes, 256 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f, head := filled(b)
			oldest, _ := f.Oldest()
			buf := make([]byte, n)
			b.ReportAllocs()
			at, total := oldest, 0
			for b.Loop() {
				n, _, err := f.Read(at, buf)
				if err != nil {
					b.Fatal(err)
				}
				total += n
				if at += uint64(n); at == head {
					at = oldest
				}
			}
			b.SetBytes(int64(total / b.N))
		})
	}
}

// filled returns a File with 32 MiB, all that it may hold.
func filled(b *testing.B) (f *File, head uint64) {
	b.Helper()
	const limit = 32 << 20
	s, err := Open(Options{Dir: b.TempDir(), PerTerminal: limit, Total: 2 * limit})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	f = s.Create(pty, epoch)
	p := stream(0, maxSegmentBytes)
	for ; head < limit; head += uint64(len(p)) {
		f.Append(head, p)
	}
	return f, head
}
