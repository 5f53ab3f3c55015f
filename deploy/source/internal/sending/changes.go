package sending

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// looking is how often files are taken to have changed whatever the system says: some
// file systems tell nothing.
const looking = 30 * time.Second

// Changes sends when one of the files changes, or what stands beside it with its name
// and more, as journals do. It ends with ctx.
func Changes(ctx context.Context, files ...string) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := watcher.Add(filepath.Dir(file)); err != nil { // a file that is replaced would be lost
			_ = watcher.Close()
			return nil, err
		}
	}
	changes := make(chan struct{}, 1)
	tell := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	go func() {
		defer watcher.Close()
		tick := time.NewTicker(looking)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				tell()
			case err := <-watcher.Errors:
				if err != nil { // events were lost
					tell()
				}
			case event := <-watcher.Events:
				if event.Op != fsnotify.Chmod && slices.ContainsFunc(files, func(file string) bool { return strings.HasPrefix(event.Name, file) }) {
					tell()
				}
			}
		}
	}()
	return changes, nil
}
