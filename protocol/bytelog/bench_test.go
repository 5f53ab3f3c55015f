package bytelog_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
)

// BenchmarkAppendNext appends chunks and lets one reader follow them.
func BenchmarkAppendNext(b *testing.B) {
	for _, n := range []int{64, 4 << 10, protocol.MaxDataBytes, 32 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := bytelog.New(epoch, protocol.LogWindowBytes)
			p := bytes.Repeat([]byte{'x'}, n)
			for l.Oldest() == 0 {
				l.Append(p) // until the buffer is as large as it gets
			}
			c, err := l.CursorAt(l.Head())
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				l.Append(p)
				for {
					if _, ok, err := l.Next(&c, protocol.MaxDataBytes); err != nil {
						b.Fatal(err)
					} else if !ok {
						break
					}
				}
			}
		})
	}
}

// BenchmarkLineStart looks for a line in bytes that hold none.
func BenchmarkLineStart(b *testing.B) {
	l := bytelog.New(epoch, protocol.LogWindowBytes)
	l.Append(bytes.Repeat([]byte{'x'}, protocol.LogWindowBytes+1))
	b.SetBytes(protocol.MaxReplayBytes)
	for b.Loop() {
		l.LineStart(protocol.MaxReplayBytes)
	}
}
