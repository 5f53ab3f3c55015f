package protocol

// A FileType says what a path names.
type FileType string

const (
	FileRegular FileType = "file"
	FileDir     FileType = "dir"
	FileSymlink FileType = "symlink"
	FileOther   FileType = "other" // a FIFO, a device, a socket: listed, never opened
)

// A FileInfo describes one path of the workspace (seed 001).
type FileInfo struct {
	Name    string   `json:"name"`
	Path    string   `json:"path"` // "/…", from the workspace
	Type    FileType `json:"type"`
	Size    int64    `json:"size"` // bytes
	IsDir   bool     `json:"is_dir"`
	ModTime string   `json:"mod_time"`         // RFC 3339
	Mode    string   `json:"mode"`             // as ls shows it
	Target  string   `json:"target,omitempty"` // of a symlink
	ETag    string   `json:"etag,omitempty"`   // of a regular file, for If-Match
}

// A FileList is the answer of GET /sessions/{sid}/files.
type FileList struct {
	Files []FileInfo `json:"files"`
}

// FileMove is the body of POST /sessions/{sid}/files/move.
type FileMove struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite bool   `json:"overwrite,omitempty"`
}

// FileMkdir is the body of POST /sessions/{sid}/files/mkdir; folders above are
// made as well.
type FileMkdir struct {
	Path string `json:"path"`
}

// A FileChange is one event of GET /sessions/{sid}/files/watch.
type FileChange struct {
	Path string `json:"path"` // "/…"
	Type string `json:"type"` // created, changed, removed, renamed
}
