package reverseproxy

import "sync"

// buffers are reused from answer to answer.
type buffers struct {
	size int
	pool sync.Pool
}

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, b.size)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
