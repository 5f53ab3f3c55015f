package screen

// paintStale writes the clusters that xterm.js still knows of cells which hold
// something else: it may show them again when their row gets another size.
func (p *painter) paintStale(r *row, from int) {
	half := func(x int) bool { return x >= 0 && x < p.cols && (isOrphan(r, x) || isWidow(r, x)) }
	for x := from; x < min(len(r.clusters), p.cols); x++ {
		if !r.stale(x) || half(x-1) || half(x) || half(x+1) || half(x+2) {
			continue
		}
		c := cell{content: clusterBit | (r.clusters[x] - 1)}
		width := p.clusters.width(c.content)
		if x+width > p.cols {
			continue
		}
		c.content |= uint32(width^1) << widthShift
		p.to(x)
		p.use(pen{})
		p.print(&c)
		p.marked[x], p.marked[x+width-1] = true, true
	}
}

// stale reports whether column x had a cluster and has none now.
func (r *row) stale(x int) bool {
	return x < len(r.clusters) && r.clusters[x] != 0 && r.cells[x].content&clusterBit == 0
}

// width returns the columns that a cluster takes when it is printed.
func (t *clusterTable) width(content uint32) int {
	j := joint(0)
	for _, r := range t.appendRunes(nil, content) {
		j, _ = j.follow(r)
	}
	return j.width()
}
