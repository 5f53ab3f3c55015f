package console_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A fakeFile is a file, or with dir a folder.
type fakeFile struct {
	dir     bool
	content []byte
	version int // of the ETag
	at      time.Time
	target  string // of a symlink
}

type fakeUpload struct {
	path    string
	size    int
	content []byte
	done    bool
}

// fakeFiles is the workspace of a fake relay's sandbox.
type fakeFiles struct {
	files    map[string]*fakeFile // by path; "/" is there always
	uploads  map[string]*fakeUpload
	watchers map[chan string]struct{} // what they are sent is an event as it goes out
	version  int
	full     bool // the disk
	breakAt  int  // bytes of uploads after which the connection breaks, once
	patches  int
}

func newFakeFiles() *fakeFiles {
	return &fakeFiles{
		files:   map[string]*fakeFile{"/": {dir: true}},
		uploads: make(map[string]*fakeUpload), watchers: make(map[chan string]struct{}),
	}
}

// registerFiles adds the routes of files.
func (f *fakeRelay) registerFiles(mux *http.ServeMux) {
	const session = "/sessions/{sid}"
	for pattern, handle := range map[string]func(http.ResponseWriter, *http.Request){
		"GET " + session + "/files": f.listFiles, "GET " + session + "/file/stat": f.statFile,
		"GET " + session + "/file": f.readFile, "PUT " + session + "/file": f.putFile,
		"DELETE " + session + "/file": f.deleteFile, "POST " + session + "/files/mkdir": f.mkdir,
		"POST " + session + "/files/move": f.moveFile, "GET " + session + "/files/watch": f.watchFiles,
		"GET " + session + "/files/archive": f.archive, "POST " + session + "/uploads": f.createUpload,
		"HEAD " + session + "/uploads/{uid}": f.headUpload, "PATCH " + session + "/uploads/{uid}": f.patchUpload,
		"DELETE " + session + "/uploads/{uid}": f.dropUpload,
	} {
		need := protocol.CapFilesRead
		if method, _, _ := strings.Cut(pattern, " "); method != http.MethodGet {
			need = protocol.CapFilesWrite
		}
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			u, ok := f.user(w, r, true)
			if !ok {
				return
			}
			if !slices.Contains(u.caps, need) {
				f.fault("%s asks for %s", u.name, pattern)
				refuse(w, protocol.KindForbidden)
				return
			}
			handle(w, r)
		})
	}
}

// put makes a file, and the folders above it, as a program in a terminal does.
func (f *fakeRelay) put(name, content string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeFile(name, []byte(content))
}

// writeFile is put with f.mu held.
func (f *fakeRelay) writeFile(name string, content []byte) *fakeFile {
	f.makeFolder(path.Dir(name))
	kind := "changed"
	if f.files.files[name] == nil {
		kind = "created"
	}
	f.files.version++
	file := &fakeFile{content: content, version: f.files.version, at: time.Now()}
	f.files.files[name] = file
	f.tell(name, kind)
	return file
}

func (f *fakeRelay) makeFolder(name string) {
	if f.files.files[name] != nil {
		return
	}
	f.makeFolder(path.Dir(name))
	f.files.files[name] = &fakeFile{dir: true, at: time.Now()}
	f.tell(name, "created")
}

// tell sends a change to who watches. f.mu is held.
func (f *fakeRelay) tell(name, kind string) {
	data, err := json.Marshal(protocol.FileChange{Path: name, Type: kind})
	if err != nil {
		panic(err)
	}
	for w := range f.files.watchers {
		select {
		case w <- "event: changed\ndata: " + string(data) + "\n\n":
		default:
			f.faults = append(f.faults, "a watcher reads nothing")
		}
	}
}

func (file *fakeFile) tag() string { return fmt.Sprintf(`"v%d"`, file.version) }

func (file *fakeFile) info(name string) protocol.FileInfo {
	info := protocol.FileInfo{
		Name: path.Base(name), Path: name, Type: protocol.FileRegular, Size: int64(len(file.content)),
		ModTime: file.at.UTC().Format(time.RFC3339Nano), Mode: "-rw-r--r--", ETag: file.tag(), Target: file.target,
	}
	switch {
	case file.dir:
		info.Type, info.IsDir, info.ETag = protocol.FileDir, true, ""
	case file.target != "":
		info.Type, info.ETag = protocol.FileSymlink, ""
	}
	return info
}

// below returns the paths of what is in dir, at any depth.
func (f *fakeRelay) below(dir string) []string {
	var names []string
	for name := range f.files.files {
		if name != "/" && strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (f *fakeRelay) listFiles(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir := r.URL.Query().Get("path")
	if file := f.files.files[dir]; file == nil || !file.dir {
		refuse(w, protocol.KindNotFound)
		return
	}
	list := protocol.FileList{Files: []protocol.FileInfo{}}
	for _, name := range f.below(dir) {
		if path.Dir(name) == dir {
			list.Files = append(list.Files, f.files.files[name].info(name))
		}
	}
	answer(w, 200, list)
}

// file returns the file that r names.
func (f *fakeRelay) file(w http.ResponseWriter, r *http.Request) (string, *fakeFile) {
	name := r.URL.Query().Get("path")
	file := f.files.files[name]
	if file == nil {
		refuse(w, protocol.KindNotFound)
	}
	return name, file
}

func (f *fakeRelay) statFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name, file := f.file(w, r); file != nil {
		answer(w, 200, file.info(name))
	}
}

func (f *fakeRelay) readFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	_, file := f.file(w, r)
	f.mu.Unlock()
	if file != nil {
		w.Header().Set("ETag", file.tag())
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", file.at, strings.NewReader(string(file.content)))
	}
}

func (f *fakeRelay) putFile(w http.ResponseWriter, r *http.Request) {
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files.full {
		refuse(w, protocol.KindNoSpace)
		return
	}
	name := r.URL.Query().Get("path")
	file := f.files.files[name]
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case match == "" && none != "*":
		f.faults = append(f.faults, "PUT file without a condition")
	case none == "*" && file != nil, match != "" && (file == nil || file.tag() != match):
		answer(w, http.StatusPreconditionFailed, map[string]any{"error": protocol.ErrorBody{Message: "the file is not as the condition says"}})
		return
	}
	answer(w, 201, f.writeFile(name, content).info(name))
}

func (f *fakeRelay) deleteFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, file := f.file(w, r)
	if file == nil {
		return
	}
	for _, below := range append(f.below(name), name) {
		delete(f.files.files, below)
		f.tell(below, "removed")
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *fakeRelay) mkdir(w http.ResponseWriter, r *http.Request) {
	var body protocol.FileMkdir
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, protocol.KindInvalid)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.makeFolder(body.Path)
	answer(w, 201, f.files.files[body.Path].info(body.Path))
}

func (f *fakeRelay) moveFile(w http.ResponseWriter, r *http.Request) {
	var body protocol.FileMove
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, protocol.KindInvalid)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.files.files[body.From]
	switch {
	case file == nil:
		refuse(w, protocol.KindNotFound)
		return
	case f.files.files[body.To] != nil:
		answer(w, http.StatusConflict, map[string]any{"error": protocol.ErrorBody{Message: "there is something of that name already"}})
		return
	}
	for _, name := range append(f.below(body.From), body.From) {
		to := body.To + strings.TrimPrefix(name, body.From)
		f.files.files[to] = f.files.files[name]
		delete(f.files.files, name)
	}
	f.tell(body.From, "removed")
	f.tell(body.To, "renamed")
	answer(w, 200, file.info(body.To))
}

func (f *fakeRelay) watchFiles(w http.ResponseWriter, r *http.Request) {
	events := make(chan string, 64)
	f.mu.Lock()
	f.files.watchers[events] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.files.watchers, events)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "event: ready\ndata: {\"path\":\"/\"}\n\n")
	http.NewResponseController(w).Flush()
	for {
		select {
		case event := <-events:
			if event == "" {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprint(w, event)
			http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fakeRelay) archive(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, _ := f.file(w, r)
	packed := gzip.NewWriter(w)
	files := tar.NewWriter(packed)
	for _, below := range f.below(name) {
		if file := f.files.files[below]; !file.dir {
			files.WriteHeader(&tar.Header{Name: strings.TrimPrefix(below, "/"), Size: int64(len(file.content)), Mode: 0o644})
			files.Write(file.content)
		}
	}
	files.Close()
	packed.Close()
}

func (f *fakeRelay) createUpload(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(r.Header.Get("Upload-Length"))
	name, errName := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.Header.Get("Upload-Metadata"), "path "))
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || errName != nil || r.Header.Get("Tus-Resumable") != "1.0.0" {
		f.faults = append(f.faults, "POST uploads: "+fmt.Sprint(r.Header))
		refuse(w, protocol.KindInvalid)
		return
	}
	id := "up" + strconv.Itoa(len(f.files.uploads))
	f.files.uploads[id] = &fakeUpload{path: string(name), size: size}
	w.Header().Set("Location", r.URL.Path+"/"+id)
	w.WriteHeader(http.StatusCreated)
}

func (f *fakeRelay) upload(w http.ResponseWriter, r *http.Request) *fakeUpload {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.files.uploads[r.PathValue("uid")]
	if u == nil {
		refuse(w, protocol.KindNotFound)
	}
	return u
}

func (f *fakeRelay) headUpload(w http.ResponseWriter, r *http.Request) {
	if u := f.upload(w, r); u != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		w.Header().Set("Upload-Offset", strconv.Itoa(len(u.content)))
	}
}

func (f *fakeRelay) patchUpload(w http.ResponseWriter, r *http.Request) {
	u := f.upload(w, r)
	if u == nil {
		return
	}
	f.mu.Lock()
	f.files.patches++
	at, breakAt := len(u.content), f.files.breakAt
	f.mu.Unlock()
	if r.Header.Get("Upload-Offset") != strconv.Itoa(at) {
		refuse(w, protocol.KindConflict)
		return
	}
	var body io.Reader = r.Body
	breaks := breakAt > 0 && at >= breakAt
	if breaks {
		body = io.LimitReader(body, 100_000)
	}
	content, err := io.ReadAll(body)
	f.mu.Lock()
	u.content = append(u.content, content...)
	if breaks {
		f.files.breakAt = 0
	}
	if !u.done && len(u.content) == u.size && err == nil {
		u.done = true
		f.writeFile(u.path, u.content)
	}
	f.mu.Unlock()
	if breaks {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Upload-Offset", strconv.Itoa(len(u.content)))
	w.WriteHeader(http.StatusNoContent)
}

func (f *fakeRelay) dropUpload(w http.ResponseWriter, r *http.Request) {
	if f.upload(w, r) != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.files.uploads, r.PathValue("uid"))
		w.WriteHeader(http.StatusNoContent)
	}
}
