package files

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// maxListBytes bounds the JSON of a list, since paths can be long.
const maxListBytes = 64 << 20

// redactedHeader says that an answer is masked. It must not be written back.
const redactedHeader = "Fairlead-Redacted"

// read is GET /sessions/{sid}/file?path=, with ranges and conditions. With
// redact=1 the content is masked whatever its name.
func (s routes) read(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error {
	redact, err := flag(r, "redact")
	if err != nil {
		return err
	}
	f, err := s.FS.Open(r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	defer f.Close()
	asDownload(w, "application/octet-stream", f.Info.Name)
	if s.Redact != nil && (redact || s.secret(caller, f.Name, f.Info.Name)) {
		return s.readMasked(w, r, f)
	}
	w.Header().Set("ETag", f.Info.ETag)
	http.ServeContent(w, r, "", f.Modified, f.File)
	return nil
}

// readMasked sends f masked, from its beginning: an offset or an ETag would tell
// of the content behind the mask.
func (s routes) readMasked(w http.ResponseWriter, r *http.Request, f *workspace.File) error {
	w.Header().Set(redactedHeader, "true")
	w.Header().Set("Accept-Ranges", "none")
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(w, newMasked(f, s.Redact())); err != nil {
		panic(http.ErrAbortHandler) // the client must not take it for all
	}
	return nil
}

// stat is GET /sessions/{sid}/file/stat?path=.
func (s routes) stat(w http.ResponseWriter, r *http.Request, _ toolbox.Caller) error {
	info, err := s.FS.Stat(r.URL.Query().Get("path"))
	if err == nil {
		reply.JSON(w, http.StatusOK, info)
	}
	return err
}

// list is GET /sessions/{sid}/files?path=&recursive=, a protocol.FileList.
func (s routes) list(w http.ResponseWriter, r *http.Request, _ toolbox.Caller) error {
	recursive, err := flag(r, "recursive")
	if err != nil {
		return err
	}
	var body bytes.Buffer
	body.WriteString(`{"files":[`)
	empty := body.Len()
	err = s.FS.List(r.Context(), folderPath(r), recursive, func(info protocol.FileInfo) error {
		if body.Len() > empty {
			body.WriteByte(',')
		}
		text, err := json.Marshal(info)
		if err != nil {
			return err
		}
		body.Write(text)
		if body.Len() > maxListBytes {
			return protocol.Errorf(protocol.KindTooLarge, "the list is over %d bytes", maxListBytes)
		}
		return nil
	})
	if err != nil {
		return err
	}
	body.WriteString("]}\n")
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.Write(body.Bytes())
	return nil
}

// archive is GET /sessions/{sid}/files/archive?path=&format=: the folder, packed
// as it is read. A failure behind the first byte cuts the answer off.
func (s routes) archive(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error {
	format := workspace.Format(r.URL.Query().Get("format"))
	if format == "" {
		format = workspace.TarGz
	}
	if !format.Known() {
		return protocol.Errorf(protocol.KindInvalid, "format is neither tar.gz nor zip")
	}
	redact, err := flag(r, "redact")
	if err != nil {
		return err
	}
	info, err := s.FS.Archivable(folderPath(r))
	if err != nil {
		return err
	}
	name, kind := info.Name, "application/gzip"
	if info.Path == "/" {
		name = "workspace"
	}
	if format == workspace.Zip {
		kind = "application/zip"
	}
	asDownload(w, kind, name+"."+string(format))
	if r.Method == http.MethodHead {
		return nil
	}
	body := &begun{w: w}
	err = s.FS.Archive(r.Context(), folderPath(r), format, s.archiveFilter(caller, redact), body)
	if err != nil && !body.any {
		return err
	}
	if err != nil {
		s.log().Debug("a download was cut off", "err", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// A begun notes whether anything was written.
type begun struct {
	w   io.Writer
	any bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.any = true
	return b.w.Write(p)
}

// archiveFilter masks as read does. What stands before the content is its size,
// so a masked file is read twice.
func (s routes) archiveFilter(caller toolbox.Caller, redact bool) workspace.Filter {
	if s.Redact == nil {
		return nil
	}
	return func(f *workspace.File) (io.Reader, int64, error) {
		if !redact && !s.secret(caller, f.Name, f.Info.Name) {
			return nil, 0, nil
		}
		size, err := io.Copy(io.Discard, newMasked(f, s.Redact()))
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		return newMasked(f, s.Redact()), size, err
	}
}
