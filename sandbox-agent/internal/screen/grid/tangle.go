package grid

// A reading says whether the rows of a screen may read otherwise than the output
// did: then a secret may stand on the screen that was in no line of the output.
type reading struct {
	tangled    bool
	wasTangled bool // perhaps no more
	Returned   bool // the cursor went back to the first column, and nothing more yet
}

// TakeTangled reports whether, since it was last called, rows of the screen may
// have come to read otherwise than the output did: because the cursor went back
// or somewhere else, what is there was moved, or a line ended at the full
// width. Output that only goes forward, line by line, never does that.
func (r *reading) TakeTangled() bool {
	was := r.tangled || r.wasTangled
	r.wasTangled = r.tangled
	return was
}

// Tangle says that the screen may read otherwise than the output did, until a
// line begins that has nothing beside or above it.
func (r *reading) Tangle() { r.tangled, r.wasTangled = true, true }

// fed is called when a line feed has moved the cursor down. text says that the
// row above is full or that the row has text already, modes what modes.tangle
// reports.
func (r *reading) fed(text, modes bool) {
	r.Returned = false
	switch {
	case text:
		r.Tangle()
	case r.tangled:
		r.tangled = modes
	}
}
