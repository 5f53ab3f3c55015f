package workspace

import (
	"fmt"
	"os"
)

// An FS is the files below one folder. It is safe for concurrent use. Its errors
// have a [protocol.Kind]; their text may be shown to whoever asked.
type FS struct {
	*writer
	watches watches
}

// Open opens the workspace o.Dir, removes what writes of an earlier process left
// behind, and finds the uploads that may be resumed.
func Open(o Options) (*FS, error) {
	o.fill()
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	staging, err := openStaging(root, &o)
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("workspace: %w", err)
	}
	r := newReader(root, &o, staging)
	s := &FS{writer: &writer{reader: r}, watches: watches{files: r, trees: make(map[treeKey]*tree)}}
	s.watches.folders.Store(int64(o.MaxWatched))
	return s, nil
}

// Close ends all watches and what runs in the background. Uploads stay to be
// resumed after the next Open. It may be called again.
func (s *FS) Close() error {
	s.watches.close()
	s.staging.close()
	return s.root.Close()
}

// MaxFileBytes returns the limit of one write.
func (s *FS) MaxFileBytes() int64 { return s.o.MaxFileBytes }

// Watch begins to watch the folder path, with all below it when recursive.
// Symlinks below it are not followed. Over MaxWatches is KindTooMany.
func (s *FS) Watch(path string, recursive bool) (*Watch, error) {
	clean, err := Clean(path)
	if err != nil {
		return nil, err
	}
	w, err := s.watches.join(treeKey{clean, recursive})
	if err != nil {
		return nil, s.fault(err)
	}
	<-w.tree.ready
	if err := w.end(); err != nil {
		w.Close()
		return nil, s.fault(err)
	}
	return w, nil
}
