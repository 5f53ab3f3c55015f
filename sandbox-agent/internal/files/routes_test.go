package files

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

const filesSession = "ses_1"

// stars masks the word "hunter22", wherever it is split.
type stars struct{ held []byte }

func (m *stars) Write(dst, p []byte) []byte {
	m.held = append(m.held, p...)
	return dst
}

func (m *stars) Flush(dst []byte) []byte {
	return append(dst, bytes.ReplaceAll(m.held, []byte("hunter22"), []byte("*"))...)
}

// A filesRig is a server of the files of a folder under one grant.
type filesRig struct {
	t      *testing.T
	dir    string
	server *httptest.Server
	grant  *jws.Grant
}

func newFilesRig(t *testing.T, change ...func(*workspace.Options)) *filesRig {
	t.Helper()
	o := workspace.Options{Dir: t.TempDir(), MaxFileBytes: 1 << 20, MaxUploadBytes: 2 << 20}
	for _, f := range change {
		f(&o)
	}
	tree, err := workspace.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	r := &filesRig{t: t, dir: o.Dir, grant: &jws.Grant{Subject: "usr_1", Caps: []protocol.Capability{
		protocol.CapFilesRead, protocol.CapFilesWrite, protocol.CapEnv,
	}}}
	mux := http.NewServeMux()
	(&Files{
		FS:     tree,
		Redact: func() Masker { return new(stars) }, Marked: DefaultMarked, KeepAlive: 20 * time.Millisecond,
	}).Routes(mux)
	r.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		mux.ServeHTTP(rw, req.WithContext(route.WithGrant(req.Context(), r.grant)))
	}))
	t.Cleanup(r.server.Close)
	return r
}

// caps narrows the grant.
func (r *filesRig) caps(caps ...protocol.Capability) { r.grant.Caps = caps }

func (r *filesRig) put(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o775); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o664); err != nil {
		r.t.Fatal(err)
	}
}

func (r *filesRig) content(name string) string {
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// do asks for "METHOD path-below-the-session" with headers "Name: value", and
// returns the answer with its body.
func (r *filesRig) do(route string, body io.Reader, headers ...string) (*http.Response, string) {
	r.t.Helper()
	resp := r.open(route, body, headers...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Errorf("%s: %v", route, err)
	}
	return resp, string(text)
}

func (r *filesRig) open(route string, body io.Reader, headers ...string) *http.Response {
	r.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+"/sessions/"+filesSession+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := r.server.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// want asks and checks the status; of an error the body's form as well.
func (r *filesRig) want(status int, route, body string, headers ...string) string {
	r.t.Helper()
	resp, text := r.do(route, strings.NewReader(body), headers...)
	if resp.StatusCode != status {
		r.t.Errorf("%s: %d %s, want %d", route, resp.StatusCode, text, status)
	}
	if method, _, _ := strings.Cut(route, " "); status >= 400 && status != http.StatusRequestedRangeNotSatisfiable && method != "HEAD" {
		var answer struct{ Error protocol.ErrorBody }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Error.Message == "" {
			r.t.Errorf("%s: the error is %q", route, text)
		}
	}
	return text
}

func TestFilesNeedTheCapability(t *testing.T) {
	r := newFilesRig(t)
	reads := []string{"GET /file?path=f", "HEAD /file?path=f", "GET /file/stat?path=f", "GET /files", "GET /files/archive", "GET /files/watch"}
	writes := []string{
		"PUT /file?path=f", "DELETE /file?path=f", "POST /files/mkdir", "POST /files/move", "POST /upload?path=f",
		"POST /uploads", "HEAD /uploads/x", "PATCH /uploads/x", "DELETE /uploads/x",
	}
	r.caps(protocol.CapFilesWrite)
	for _, route := range reads {
		r.want(http.StatusForbidden, route, "")
	}
	r.caps(protocol.CapFilesRead)
	for _, route := range writes {
		r.want(http.StatusForbidden, route, "")
	}
	r.caps(protocol.CapFilesRead, protocol.CapFilesWrite)
	r.grant.Session = "ses_2"
	for _, route := range append(reads, writes...) {
		r.want(http.StatusForbidden, route, "")
	}
	r.grant = nil
	r.want(http.StatusForbidden, "GET /files", "")
}

func TestReadFile(t *testing.T) {
	r := newFilesRig(t)
	r.put("a/page.html", "0123456789")
	resp, text := r.do("GET /file?path=/a/page.html", nil)
	if resp.StatusCode != 200 || text != "0123456789" {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename=page.html",
		"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Content-Length": "10",
	} {
		if got := resp.Header.Get(name); got != value {
			t.Errorf("%s: %q", name, got)
		}
	}
	tag := resp.Header.Get("ETag")
	r.want(http.StatusNotModified, "GET /file?path=a/page.html", "", "If-None-Match: "+tag)
	if got := r.want(http.StatusPartialContent, "GET /file?path=a/page.html", "", "Range: bytes=2-4", "If-Range: "+tag); got != "234" {
		t.Errorf("%q", got)
	}
	if got := r.want(http.StatusOK, "GET /file?path=a/page.html", "", "Range: bytes=2-4", `If-Range: "other"`); got != "0123456789" {
		t.Errorf("%q", got)
	}
	if got := r.want(http.StatusPartialContent, "GET /file?path=a/page.html", "", "Range: bytes=0-1,-1"); !strings.Contains(got, "01\r\n") || !strings.Contains(got, "9\r\n") {
		t.Errorf("%q", got)
	}
	r.want(http.StatusRequestedRangeNotSatisfiable, "GET /file?path=a/page.html", "", "Range: bytes=10-")
	if resp, text := r.do("HEAD /file?path=a/page.html", nil); resp.ContentLength != 10 || text != "" {
		t.Errorf("%d %q", resp.ContentLength, text)
	}
	r.put("a/new\nline\".txt", "x")
	if resp, _ := r.do("GET /file?path=a/new%0aline%22.txt", nil); resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment; filename") {
		t.Errorf("%d %q", resp.StatusCode, resp.Header.Get("Content-Disposition"))
	}
	for route, status := range map[string]int{
		"GET /file": 400, "GET /file?path=none": 404, "GET /file?path=a": 400, "GET /file?path=../f": 400,
		"GET /file?path=a%00": 400, "GET /file?path=" + strings.Repeat("n", 256): 400, "GET /file?path=a/page.html/": 400,
		"GET /file?path=a/page.html&redact=maybe": 400, "GET /file?path=/etc/passwd": 404,
	} {
		r.want(status, route, "")
	}
}

func TestMarkedFilesAreMasked(t *testing.T) {
	r := newFilesRig(t)
	r.put("d/.env", "KEY=hunter22\n")
	r.put("d/f", "hunter22")
	if err := os.Symlink(".env", filepath.Join(r.dir, "d/link")); err != nil {
		t.Fatal(err)
	}
	if got := r.want(200, "GET /file?path=d/.env", ""); got != "KEY=hunter22\n" {
		t.Errorf("who may set secrets reads %q", got)
	}
	if got := r.want(200, "GET /file?path=d/f&redact=1", ""); got != "*" {
		t.Errorf("%q", got)
	}
	r.caps(protocol.CapFilesRead, protocol.CapFilesWrite)
	for _, path := range []string{"d/.env", "d/link", "d/./.env"} {
		resp, text := r.do("GET /file?path="+path, nil, "Range: bytes=4-")
		if resp.StatusCode != 200 || text != "KEY=*\n" || resp.Header.Get("Fairlead-Redacted") != "true" || resp.Header.Get("ETag") != "" {
			t.Errorf("%s: %d %q %v", path, resp.StatusCode, text, resp.Header)
		}
		if resp, _ := r.do("HEAD /file?path="+path, nil); resp.ContentLength == 13 {
			t.Errorf("%s: the size is told", path)
		}
	}
	if got := r.want(200, "GET /file?path=d/f", ""); got != "hunter22" {
		t.Errorf("%q", got)
	}
	for _, from := range []string{"d/.env", "d/.env/.", "/d//.env"} {
		r.want(403, "POST /files/move", fmt.Sprintf(`{"from":%q,"to":"d/x"}`, from))
	}
	packed := r.want(200, "GET /files/archive?path=d&format=zip", "")
	files, err := zip.NewReader(strings.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files.File {
		c, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(c)
		if want := map[string]string{".env": "KEY=*\n", "f": "hunter22"}[f.Name]; string(text) != want || err != nil {
			t.Errorf("%s: %q, %v", f.Name, text, err)
		}
		c.Close()
	}
	r.want(200, "POST /files/move", `{"from":"d/.env","to":"d/.env.local"}`)
}

func TestListFiles(t *testing.T) {
	r := newFilesRig(t, func(o *workspace.Options) { o.MaxEntries = 4 })
	if got := r.want(200, "GET /files", ""); got != "{\"files\":[]}\n" {
		t.Errorf("%q", got)
	}
	r.put("a/b/f", "x")
	r.put("c", "xy")
	var list protocol.FileList
	if err := json.Unmarshal([]byte(r.want(200, "GET /files?path=/&recursive=true", "")), &list); err != nil || len(list.Files) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	if f := list.Files[3]; f.Path != "/c" || f.Size != 2 || f.Type != protocol.FileRegular || f.Mode != "-rw-r--r--" {
		t.Errorf("%+v", f)
	}
	var info protocol.FileInfo
	if err := json.Unmarshal([]byte(r.want(200, "GET /file/stat?path=c", "")), &info); err != nil || info != list.Files[3] {
		t.Errorf("%+v, %v", info, err)
	}
	r.put("d", "x")
	r.want(413, "GET /files?recursive=1", "")
	r.want(400, "GET /files?path=c", "")
	r.want(400, "GET /files?recursive=yes", "")
	r.want(404, "GET /files?path=none", "")
}

func TestWriteFile(t *testing.T) {
	r := newFilesRig(t)
	var info protocol.FileInfo
	if err := json.Unmarshal([]byte(r.want(201, "PUT /file?path=a/f", "one", "If-None-Match: *")), &info); err != nil || info.Path != "/a/f" || info.Size != 3 {
		t.Errorf("%+v, %v", info, err)
	}
	r.want(412, "PUT /file?path=a/f", "two", "If-None-Match: *")
	r.want(409, "PUT /file?path=a/f&overwrite=false", "two")
	r.want(412, "PUT /file?path=a/f", "two", `If-Match: "other"`)
	r.want(200, "PUT /file?path=a/f", "two", "If-Match: "+info.ETag)
	r.want(412, "PUT /file?path=a/f", "three", "If-Match: "+info.ETag)
	r.want(400, "PUT /file?path=a/f", "x", `If-None-Match: "x"`)
	r.want(400, "PUT /file?path=a/f", "x", "Content-Range: bytes 0-0/3")
	r.want(400, "PUT /file?path=/", "x")
	r.want(400, "PUT /file", "x")
	r.want(409, "PUT /file?path=a", "x")
	r.want(413, "PUT /file?path=a/f", strings.Repeat("x", 1<<20+1))
	resp, _ := r.do("PUT /file?path=a/f", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), strings.NewReader("x"))) // no length
	if resp.StatusCode != 413 || r.content("a/f") != "two" {
		t.Errorf("%d %.20q", resp.StatusCode, r.content("a/f"))
	}
}

func TestChangeFiles(t *testing.T) {
	r := newFilesRig(t)
	r.want(201, "POST /files/mkdir", `{"path":"/a/b"}`)
	r.want(200, "POST /files/mkdir", `{"path":"/a/b"}`)
	r.put("f", "x")
	r.want(409, "POST /files/mkdir", `{"path":"f"}`)
	r.want(400, "POST /files/mkdir", `{"path":"f","mode":"x"}`)
	r.want(413, "POST /files/mkdir", `{"path":"`+strings.Repeat("x", maxCommandBytes)+`"}`)
	r.want(200, "POST /files/move", `{"from":"f","to":"a/f"}`)
	r.put("f", "y")
	r.want(409, "POST /files/move", `{"from":"f","to":"a/f"}`)
	r.want(200, "POST /files/move", `{"from":"f","to":"a/f","overwrite":true}`)
	r.want(400, "POST /files/move", `{"from":"a","to":"a/b/c"}`)
	r.want(204, "DELETE /file?path=a", "")
	r.want(404, "DELETE /file?path=a", "")
	r.want(400, "DELETE /file?path=/", "")
}

func TestMultipartUpload(t *testing.T) {
	r := newFilesRig(t)
	body := func(files ...string) (io.Reader, string) {
		var b bytes.Buffer
		m := multipart.NewWriter(&b)
		if err := m.WriteField("note", "not a file"); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name, text, _ := strings.Cut(f, "=")
			part, err := m.CreateFormFile("file", name)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(part, text)
		}
		m.Close()
		return &b, "Content-Type: " + m.FormDataContentType()
	}
	form, kind := body("a.txt=1", "folder/sub/b.txt=2", "é=3")
	resp, text := r.do("POST /upload?path=/to", form, kind)
	var list protocol.FileList
	if err := json.Unmarshal([]byte(text), &list); err != nil || resp.StatusCode != 201 || len(list.Files) != 3 || list.Files[1].Path != "/to/folder/sub/b.txt" {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	if r.content("to/a.txt")+r.content("to/folder/sub/b.txt")+r.content("to/é") != "123" {
		t.Error("the files differ")
	}
	for status, file := range map[int]string{400: "../x=1", 409: "a.txt=new", 413: "big=" + strings.Repeat("x", 1<<20+1)} {
		form, kind = body(file)
		if resp, text := r.do("POST /upload?path=/to&overwrite=false", form, kind); resp.StatusCode != status {
			t.Errorf("%.10s: %d %s", file, resp.StatusCode, text)
		}
	}
	r.want(400, "POST /upload?path=/to", "--x\r\nbroken", "Content-Type: multipart/form-data; boundary=x")
	r.want(400, "POST /upload?path=/to", "", "Content-Type: multipart/form-data")
	r.want(201, "POST /upload?path=/to/raw", "raw")
	if r.content("to/raw") != "raw" {
		t.Error("the raw upload differs")
	}
}

// vanishing removes a folder between the check and the walk: when the answer's
// headers are first touched.
type vanishing struct {
	*httptest.ResponseRecorder
	remove func()
}

func (w *vanishing) Header() http.Header {
	w.remove()
	return w.ResponseRecorder.Header()
}

func TestArchiveOfAFolderThatVanishes(t *testing.T) {
	for _, format := range []string{"zip", "tar.gz"} {
		r := newFilesRig(t)
		r.put("d/f", "x")
		w := &vanishing{httptest.NewRecorder(), func() { os.RemoveAll(filepath.Join(r.dir, "d")) }}
		r.server.Config.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/sessions/"+filesSession+"/files/archive?path=d&format="+format, nil))
		if h := w.Result().Header; w.Code != 404 || h.Get("Content-Type") != "application/json" || h.Get("Content-Disposition") != "" {
			t.Errorf("%s: %d %s %v", format, w.Code, w.Body, h)
		}
	}
}

func TestAWatchThatOutgrowsTheLimitSaysSo(t *testing.T) {
	r := newFilesRig(t, func(o *workspace.Options) { o.MaxWatched = 2 })
	resp := r.open("GET /files/watch?recursive=true", nil)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && lines.Text() != `data: {"path":"/"}` {
	}
	r.put("a/b/c/f", "x")
	for lines.Scan() && lines.Text() != "event: overflow" {
	}
	if !lines.Scan() || lines.Text() != `data: {"partial":true}` {
		t.Errorf("%q, %v", lines.Text(), lines.Err())
	}
}

func TestWatchFiles(t *testing.T) {
	r := newFilesRig(t)
	r.put("d/f", "x")
	r.want(404, "GET /files/watch?path=none", "")
	r.want(200, "HEAD /files/watch?path=d", "")
	resp := r.open("GET /files/watch?path=d&recursive=true", nil)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("the stream ends before %q: %v", want, lines.Err())
	}
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Error(kind)
	}
	next("event: ready")
	next(`data: {"path":"/d"}`)
	next(":") // it is quiet
	r.put("d/f", "y")
	next("event: changed")
	next(`data: {"path":"/d/f","type":"changed"}`)
	for i := range 1100 {
		r.put(fmt.Sprint("d/many", i), "")
	}
	r.put("d/last", "")
	for lines.Scan() && !strings.Contains(lines.Text(), "/d/last") && lines.Text() != "event: overflow" {
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "d")); err != nil {
		t.Fatal(err)
	}
	next("event: gone")
	if next := lines.Scan() && lines.Text() == "data: {}" && lines.Scan() && lines.Scan(); next {
		t.Errorf("something follows the end: %q", lines.Text())
	}
}
