package turn

import (
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// shape checks that n is ordered and balanced, and returns its height.
func shape(t *rapid.T, n *node[int, int]) int {
	if n == nil {
		return 0
	}
	left, right := shape(t, n.left), shape(t, n.right)
	if n.left != nil && n.left.key >= n.key || n.right != nil && n.right.key <= n.key {
		t.Fatalf("%d between %+v and %+v", n.key, n.left, n.right)
	}
	if left-right > 1 || right-left > 1 || n.height != 1+max(left, right) {
		t.Fatalf("at %d: height %d above %d and %d", n.key, n.height, left, right)
	}
	return n.height
}

// TestTree: a tree is a map, and no change reaches those before it.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			tree tree[int, int]
			want map[int]int
		}
		versions := []version{{want: map[int]int{}}}
		for i := range rapid.IntRange(0, 80).Draw(t, "changes") {
			from := versions[rapid.IntRange(0, len(versions)-1).Draw(t, "version")]
			key := rapid.IntRange(0, 20).Draw(t, "key")
			next := version{from.tree.without(key), maps.Clone(from.want)}
			delete(next.want, key)
			if rapid.Bool().Draw(t, "put") {
				next.tree, next.want[key] = from.tree.with(key, i), i
			}
			versions = append(versions, next)
		}
		for _, v := range versions {
			shape(t, v.tree.root)
			got := map[int]int{}
			for key, value := range v.tree.all() {
				if one, ok := v.tree.get(key); !ok || one != value {
					t.Fatalf("%d: %d, %v", key, one, ok)
				}
				got[key] = value
			}
			if _, ok := v.tree.get(21); ok || !maps.Equal(got, v.want) {
				t.Fatalf("%v, want %v", got, v.want)
			}
		}
	})
}

// TestTreeStops: who has seen enough sees no more.
func TestTreeStops(t *testing.T) {
	var some tree[int, int]
	for i := range 10 {
		some = some.with(i, i)
	}
	n := 0
	for key := range some.all() {
		if n++; key == 4 {
			break
		}
	}
	if n != 5 {
		t.Errorf("%d keys", n)
	}
}
