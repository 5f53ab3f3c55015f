package workspace

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func BenchmarkListRecursive(b *testing.B) {
	s, dir := open(b, func(o *Options) { o.MaxEntries = 110_000 })
	const folders, files = 1000, 100
	for i := range folders {
		folder := filepath.Join(dir, fmt.Sprintf("d%d/d%d", i%30, i))
		want(b, os.MkdirAll(folder, 0o775))
		for j := range files {
			want(b, os.WriteFile(filepath.Join(folder, fmt.Sprintf("file-%d", j)), nil, 0o664))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		want(b, s.List(background, "/", true, func(protocol.FileInfo) error { n++; return nil }))
		if n < folders*files {
			b.Fatal(n)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{1 << 10, 32 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s, _ := open(b)
			text := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				_, err := s.Write("f", bytes.NewReader(text), WriteOptions{})
				want(b, err)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	s, _ := open(b)
	const size = 32 << 20
	_, err := s.Write("f", bytes.NewReader(make([]byte, size)), WriteOptions{})
	want(b, err)
	b.SetBytes(size)
	for b.Loop() {
		f, err := s.Open("f")
		want(b, err)
		_, err = io.Copy(io.Discard, f)
		want(b, err)
		f.Close()
	}
}
