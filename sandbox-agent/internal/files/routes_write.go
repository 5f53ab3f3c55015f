package files

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// maxParts bounds the files of one multipart upload.
const maxParts = 10_000

// write is PUT /sessions/{sid}/file?path=: the body becomes the file. If-Match
// and If-None-Match: * are answered with 412 when they don't hold.
func (s routes) write(w http.ResponseWriter, r *http.Request, _ toolbox.Caller) error {
	o, err := writeOptions(r)
	if err != nil {
		return err
	}
	if r.Header.Get("Content-Range") != "" {
		return protocol.Errorf(protocol.KindInvalid, "only a whole file can be written")
	}
	if limit := s.FS.MaxFileBytes(); r.ContentLength > limit {
		return protocol.Errorf(protocol.KindTooLarge, "the file is over %d bytes", limit)
	}
	written, err := s.FS.Write(r.URL.Query().Get("path"), r.Body, o)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", written.Info.ETag)
	reply.JSON(w, created(written.Created), written.Info)
	return nil
}

// writeOptions returns what r's conditions, and overwrite=false, ask for.
func writeOptions(r *http.Request) (workspace.WriteOptions, error) {
	o := workspace.WriteOptions{IfMatch: strings.Join(r.Header.Values("If-Match"), ",")}
	switch r.Header.Get("If-None-Match") {
	case "":
	case "*":
		o.NoReplace = true
	default:
		return o, protocol.Errorf(protocol.KindInvalid, "of If-None-Match only * is known here")
	}
	if r.URL.Query().Get("overwrite") != "" {
		overwrite, err := flag(r, "overwrite")
		o.NoReplace = o.NoReplace || !overwrite
		return o, err
	}
	return o, nil
}

func created(made bool) int {
	if made {
		return http.StatusCreated
	}
	return http.StatusOK
}

// remove is DELETE /sessions/{sid}/file?path=, of a folder with its content.
func (s routes) remove(w http.ResponseWriter, r *http.Request, _ toolbox.Caller) error {
	err := s.FS.Delete(r.Context(), r.URL.Query().Get("path"))
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// mkdir is POST /sessions/{sid}/files/mkdir, a protocol.FileMkdir. A folder that
// is there is answered with 200.
func (s routes) mkdir(w http.ResponseWriter, r *http.Request, _ toolbox.Caller) error {
	var body protocol.FileMkdir
	if err := readCommand(r, &body); err != nil {
		return err
	}
	info, made, err := s.FS.Mkdir(body.Path)
	if err == nil {
		reply.JSON(w, created(made), info)
	}
	return err
}

// rename is POST /sessions/{sid}/files/move, a protocol.FileMove.
func (s routes) rename(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error {
	var body protocol.FileMove
	if err := readCommand(r, &body); err != nil {
		return err
	}
	info, err := s.move(caller, body.From, body.To, body.Overwrite)
	if err == nil {
		reply.JSON(w, http.StatusOK, info)
	}
	return err
}

// upload is POST /sessions/{sid}/upload?path=. A multipart body holds files for
// the folder path, whose names may be paths below it; any other body is the file
// path itself. With overwrite=false nothing is replaced. When a file fails, those
// before it stay.
func (s routes) upload(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		return s.write(w, r, caller)
	}
	o, err := writeOptions(r)
	if err != nil {
		return err
	}
	// Its folder is checked even when no file follows.
	dir, err := workspace.Clean(folderPath(r))
	if err != nil {
		return err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return protocol.Errorf(protocol.KindInvalid, "the body is not multipart")
	}
	list := protocol.FileList{Files: []protocol.FileInfo{}}
	for range maxParts {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			reply.JSON(w, http.StatusCreated, list)
			return nil
		}
		if err != nil {
			return &protocol.Error{Kind: protocol.KindInvalid, Message: "the multipart body is malformed", Err: err}
		}
		name := fileName(part)
		if name == "" {
			continue // a field of a form, not a file
		}
		written, err := s.FS.Write(dir+"/"+name, part, o)
		if err != nil {
			return err
		}
		list.Files = append(list.Files, written.Info)
	}
	return protocol.Errorf(protocol.KindTooLarge, "the upload has more than %d parts", maxParts)
}

// fileName returns the file name of part with its folders, which
// part.FileName leaves out.
func fileName(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}
