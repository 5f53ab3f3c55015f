package provider

// recent is a bounded set of ids: the oldest one goes for a new one.
type recent struct {
	ids  map[string]struct{}
	ring []string
	next int
}

func newRecent(size int) *recent {
	return &recent{ids: make(map[string]struct{}), ring: make([]string, size)}
}

// add adds an id and reports whether it is new.
func (r *recent) add(id string) bool {
	if _, known := r.ids[id]; known {
		return false
	}
	delete(r.ids, r.ring[r.next])
	r.ids[id] = struct{}{}
	r.ring[r.next] = id
	r.next = (r.next + 1) % len(r.ring)
	return true
}
