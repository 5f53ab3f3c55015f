package workspace

import (
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// etag identifies a state of a regular file. ctime is in it since programs can
// set mtime back.
func etag(st *unix.Stat_t) string {
	b := make([]byte, 0, 64)
	b = append(b, '"')
	b = strconv.AppendUint(b, st.Ino, 36)
	b = append(b, '-')
	b = strconv.AppendInt(b, st.Size, 36)
	b = append(b, '-')
	b = strconv.AppendInt(b, st.Mtim.Nano(), 36)
	b = append(b, '-')
	b = strconv.AppendInt(b, st.Ctim.Nano(), 36)
	return string(append(b, '"'))
}

// info returns what answers say of a clean path.
func info(clean string, st *unix.Stat_t) protocol.FileInfo {
	e := protocol.FileInfo{
		Name:    path.Base(shown(clean)),
		Path:    shown(clean),
		Type:    protocol.FileOther,
		Size:    st.Size,
		ModTime: modified(st).UTC().Format(time.RFC3339Nano),
		Mode:    lsMode(st.Mode),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type, e.ETag = protocol.FileRegular, etag(st)
	case unix.S_IFDIR:
		e.Type, e.IsDir = protocol.FileDir, true
	case unix.S_IFLNK:
		e.Type = protocol.FileSymlink
	}
	return e
}

func modified(st *unix.Stat_t) time.Time { return time.Unix(0, st.Mtim.Nano()) }

func isDir(st *unix.Stat_t) bool     { return st.Mode&unix.S_IFMT == unix.S_IFDIR }
func isRegular(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }
func isLink(st *unix.Stat_t) bool    { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

// lsMode returns mode as ls shows it.
func lsMode(mode uint32) string {
	text := []byte("?rwxrwxrwx")
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		text[0] = '-'
	case unix.S_IFDIR:
		text[0] = 'd'
	case unix.S_IFLNK:
		text[0] = 'l'
	case unix.S_IFIFO:
		text[0] = 'p'
	case unix.S_IFSOCK:
		text[0] = 's'
	case unix.S_IFCHR:
		text[0] = 'c'
	case unix.S_IFBLK:
		text[0] = 'b'
	}
	for i := range 9 {
		if mode&(1<<(8-i)) == 0 {
			text[1+i] = '-'
		}
	}
	special := func(bit uint32, at int, with, without byte) {
		switch {
		case mode&bit == 0:
		case text[at] == 'x':
			text[at] = with
		default:
			text[at] = without
		}
	}
	special(unix.S_ISUID, 3, 's', 'S')
	special(unix.S_ISGID, 6, 's', 'S')
	special(unix.S_ISVTX, 9, 't', 'T')
	return string(text)
}
