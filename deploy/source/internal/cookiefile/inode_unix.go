//go:build unix

package cookiefile

import (
	"fmt"
	"io/fs"
	"syscall"
)

// inode names the file behind a path: a browser may put another one in its place.
func inode(st fs.FileInfo) string {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprint(sys.Ino)
	}
	return ""
}
