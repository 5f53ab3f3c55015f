package screen

// A grid is what a terminal shows, and what decides where and how the next
// character is shown.
type grid struct {
	buffers          // static after construction
	buf      *buffer // the one that is shown
	pen      pen
	penCell  cell // an empty cell of the pen
	modes    modes
	charsets charsets
	title    string
	colors   colors

	// What cells refer to by number.
	links    linkTable
	exts     extTable
	clusters clusterTable

	join  joint // of the character before
	inRun bool  // the byte before was printed

	reading
	newRows int // rows above the screen in what AppendNewText returned last
}

// Size returns the size in cells.
func (g *grid) Size() (cols, rows int) { return g.buf.cols, g.buf.rows }
