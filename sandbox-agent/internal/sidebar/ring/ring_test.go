package ring

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A value is its number and its size.
type value struct {
	number uint64
	size   int
}

// TestModel compares a Ring with the list of all that was added and not dropped.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const values, bytes = 8, 100
		first := rapid.Uint64Range(0, 1<<50).Draw(t, "first")
		r, all, next := New[value](first, values, bytes), []value(nil), first
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				size := rapid.IntRange(0, 150).Draw(t, "size")
				v := r.Add(size, func(n uint64) value { return value{n, size} })
				if v.number != next {
					t.Fatalf("number %d, want %d", v.number, next)
				}
				next++
				all = append(all, v)
				for len(all) > 1 && (len(all) > values || sum(all) > bytes) {
					all = all[1:]
				}
			},
			"drop": func(t *rapid.T) {
				odd := rapid.Uint64Range(0, 1).Draw(t, "odd")
				gone := func(v value) bool { return v.number%2 == odd }
				r.Drop(gone)
				all = slices.DeleteFunc(all, gone)
			},
			"": func(t *rapid.T) {
				from := rapid.Uint64Range(first, next+1).Draw(t, "from")
				var want []value
				for _, v := range all {
					if v.number >= from {
						want = append(want, v)
					}
				}
				if got := r.From(from); !slices.Equal(got, want) {
					t.Fatalf("from %d: %v, want %v", from, got, want)
				}
				oldest := next
				if len(all) > 0 {
					oldest = all[0].number
				}
				if r.First() != oldest || r.Next() != next || r.Len() != len(all) {
					t.Fatalf("%d to %d, %d held; want %d to %d, %d", r.First(), r.Next(), r.Len(), oldest, next, len(all))
				}
			},
		})
	})
}

func sum(all []value) (n int) {
	for _, v := range all {
		n += v.size
	}
	return n
}

// Values that had numbers before keep them, and later ones come behind.
func TestPut(t *testing.T) {
	r := New[string](100, 3, 1<<10)
	for _, n := range []uint64{3, 4, 9, 20} {
		r.Put(n, 1, fmt.Sprint(n))
	}
	r.Add(1, func(n uint64) string { return fmt.Sprint(n) })
	if got := fmt.Sprint(r.From(4)); got != "[9 20 100]" || r.First() != 9 || r.Next() != 101 {
		t.Errorf("%s from %d to %d", got, r.First(), r.Next())
	}
}
