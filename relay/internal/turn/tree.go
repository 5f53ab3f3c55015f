package turn

import (
	"cmp"
	"iter"
)

// A tree is an ordered map that is a value: with and without return another one
// and leave theirs unchanged. The two share all nodes but those on the path to
// the key, so a change costs the logarithm of the size, not a copy. It is an AVL
// tree; the zero value is empty.
type tree[K cmp.Ordered, V any] struct{ root *node[K, V] }

// A node is never changed once it is part of a tree.
type node[K cmp.Ordered, V any] struct {
	key         K
	value       V
	left, right *node[K, V]
	height      int
}

// get returns the value of a key.
func (t tree[K, V]) get(key K) (value V, ok bool) {
	for n := t.root; n != nil; {
		switch c := cmp.Compare(key, n.key); {
		case c == 0:
			return n.value, true
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	return value, false
}

// with returns t with a value for a key.
func (t tree[K, V]) with(key K, value V) tree[K, V] { return tree[K, V]{t.root.with(key, value)} }

// without returns t without a key.
func (t tree[K, V]) without(key K) tree[K, V] { return tree[K, V]{t.root.without(key)} }

// all yields the keys in order, with their values.
func (t tree[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.root.walk(yield) }
}

func (n *node[K, V]) walk(yield func(K, V) bool) bool {
	return n == nil || n.left.walk(yield) && yield(n.key, n.value) && n.right.walk(yield)
}

func (n *node[K, V]) with(key K, value V) *node[K, V] {
	if n == nil {
		return join(key, value, nil, nil)
	}
	switch c := cmp.Compare(key, n.key); {
	case c == 0:
		return join(key, value, n.left, n.right)
	case c < 0:
		return balanced(n.key, n.value, n.left.with(key, value), n.right)
	default:
		return balanced(n.key, n.value, n.left, n.right.with(key, value))
	}
}

func (n *node[K, V]) without(key K) *node[K, V] {
	if n == nil {
		return nil
	}
	switch c := cmp.Compare(key, n.key); {
	case c < 0:
		return balanced(n.key, n.value, n.left.without(key), n.right)
	case c > 0:
		return balanced(n.key, n.value, n.left, n.right.without(key))
	case n.left == nil:
		return n.right
	case n.right == nil:
		return n.left
	}
	next := n.right
	for next.left != nil {
		next = next.left
	}
	return balanced(next.key, next.value, n.left, n.right.without(next.key))
}

func (n *node[K, V]) tall() int {
	if n == nil {
		return 0
	}
	return n.height
}

// join returns a node above two that differ by at most one in height.
func join[K cmp.Ordered, V any](key K, value V, left, right *node[K, V]) *node[K, V] {
	return &node[K, V]{key, value, left, right, 1 + max(left.tall(), right.tall())}
}

// balanced is join for two that differ by at most two, as after one change.
func balanced[K cmp.Ordered, V any](key K, value V, left, right *node[K, V]) *node[K, V] {
	switch lean := left.tall() - right.tall(); {
	case lean > 1 && left.left.tall() >= left.right.tall():
		return join(left.key, left.value, left.left, join(key, value, left.right, right))
	case lean > 1:
		mid := left.right
		return join(mid.key, mid.value, join(left.key, left.value, left.left, mid.left), join(key, value, mid.right, right))
	case lean < -1 && right.right.tall() >= right.left.tall():
		return join(right.key, right.value, join(key, value, left, right.left), right.right)
	case lean < -1:
		mid := right.left
		return join(mid.key, mid.value, join(key, value, left, mid.left), join(right.key, right.value, mid.right, right.right))
	}
	return join(key, value, left, right)
}
