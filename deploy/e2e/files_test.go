package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// A remote is the workspace of a sandbox as alice's machine reaches it.
type remote struct {
	t     *testing.T
	ctx   context.Context
	base  string
	grant string
}

func newRemote(t *testing.T, s *Stack, user string) *remote {
	t.Helper()
	ctx := within(t)
	u := s.Ready.User(user)
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	return &remote{t, ctx, fmt.Sprintf("%s/sessions/%s", u.Base, s.Ready.SessionID), grant}
}

// do makes a request and returns its answer, whose body the test's end closes.
func (r *remote) do(method, path string, body io.Reader, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(r.ctx, method, r.base+path, body)
	must(r.t, err)
	req.Header.Set("Authorization", "Bearer "+r.grant)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		r.t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// want makes a request that must be answered with status, and returns the body.
func (r *remote) want(status int, method, path string, body io.Reader, header ...string) []byte {
	r.t.Helper()
	resp, err := r.do(method, path, body, header...)
	must(r.t, err)
	data, err := io.ReadAll(resp.Body)
	must(r.t, err)
	if resp.StatusCode != status {
		r.t.Fatalf("%s %s: status %d: %.200s", method, path, resp.StatusCode, data)
	}
	return data
}

func at(path string) string { return "?path=" + url.QueryEscape(path) }

// TestFiles goes through what people do with the workspace.
func TestFiles(t *testing.T) {
	s := own(t)
	r := newRemote(t, s, "alice")
	r.want(http.StatusCreated, http.MethodPost, "/files/mkdir", strings.NewReader(`{"path":"/a/b"}`), "Content-Type", "application/json")
	r.want(http.StatusCreated, http.MethodPut, "/file"+at("/a/b/one.txt"), strings.NewReader("0123456789"))
	if got := r.want(http.StatusPartialContent, http.MethodGet, "/file"+at("/a/b/one.txt"), nil, "Range", "bytes=2-5"); string(got) != "2345" {
		t.Errorf("a range: %q", got)
	}
	resp, err := r.do(http.MethodGet, "/file"+at("/a/b/one.txt"), nil)
	must(t, err)
	for name, value := range map[string]string{
		"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff", "Content-Type": "application/octet-stream",
	} {
		if resp.Header.Get(name) != value {
			t.Errorf("%s: %q", name, resp.Header.Get(name))
		}
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("Content-Disposition: %q", resp.Header.Get("Content-Disposition"))
	}

	// A program in the terminal sees the file, may change it, and so may we.
	shell := attach(t, s, "alice", s.Ready.PTYID)
	must(t, shell.Type(r.ctx, "cat a/b/one.txt && echo more >> a/b/one.txt && mkfifo a/fifo && ln -s /etc/passwd a/out && echo changed-$((1))\r"))
	must(t, shell.Expect(r.ctx, "changed-1"))
	if got := r.want(http.StatusOK, http.MethodGet, "/file"+at("/a/b/one.txt"), nil); string(got) != "0123456789more\n" {
		t.Errorf("%q", got)
	}
	must(t, shell.Type(r.ctx, "chmod +x a/b/one.txt && ln a/b/one.txt a/hard && echo mode-changed-$((1))\r"))
	must(t, shell.Expect(r.ctx, "mode-changed-1"))
	r.want(http.StatusOK, http.MethodGet, "/file"+at("/a/b/one.txt"), nil)
	for _, path := range []string{"/a/fifo", "/a/out", "/../../etc/passwd", "/a/out/x"} {
		resp, err := r.do(http.MethodGet, "/file"+at(path), nil)
		must(t, err)
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
	}
	r.want(http.StatusNoContent, http.MethodDelete, "/file"+at("/a/out"), nil)
	var list protocol.FileList
	must(t, json.Unmarshal(r.want(http.StatusOK, http.MethodGet, "/files"+at("/a")+"&recursive=true", nil), &list))
	var names []string
	for _, f := range list.Files {
		names = append(names, f.Path+":"+string(f.Type))
	}
	for _, want := range []string{"/a/b:dir", "/a/b/one.txt:file", "/a/fifo:other"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("%v lacks %s", names, want)
		}
	}
	packed, err := gzip.NewReader(bytes.NewReader(r.want(http.StatusOK, http.MethodGet, "/files/archive"+at("/a")+"&format=tar.gz", nil)))
	must(t, err)
	found := false
	for files := tar.NewReader(packed); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		found = found || strings.HasSuffix(header.Name, "b/one.txt") && header.Size == 15
	}
	if !found {
		t.Error("the archive lacks a file")
	}

	viewer := newRemote(t, s, "carol")
	viewer.want(http.StatusForbidden, http.MethodPut, "/file"+at("/x"), strings.NewReader("x"))
}

// TestWatchFiles: what a program changes is told to who watches.
func TestWatchFiles(t *testing.T) {
	s := shared(t)
	r := newRemote(t, s, "alice")
	resp, err := r.do(http.MethodGet, "/files/watch"+at("/")+"&recursive=true", nil)
	must(t, err)
	lines := bufio.NewScanner(resp.Body)
	next := func(what string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), what) {
				return
			}
		}
		t.Fatalf("waiting for %s: %v", what, lines.Err())
	}
	next("event: ready")
	shell := attach(t, s, "alice", newPTY(t, s, "mkdir -p watched/deep; read x; echo hi > watched/deep/file; read x"))
	next("watched")
	must(t, shell.Type(r.ctx, "\r"))
	next("/watched/deep/file")
}

// TestUploadGoesOn: a large upload goes on where it was when the relay dies.
func TestUploadGoesOn(t *testing.T) {
	s := own(t)
	r := newRemote(t, s, "alice")
	content := make([]byte, 24<<20)
	rand.Read(content)
	resp, err := r.do(http.MethodPost, "/uploads", nil, "Tus-Resumable", "1.0.0", "Upload-Length", strconv.Itoa(len(content)),
		"Upload-Metadata", "path "+base64.StdEncoding.EncodeToString([]byte("/large.bin")))
	must(t, err)
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("creation: status %d", resp.StatusCode)
	}
	where, err := url.Parse(resp.Header.Get("Location"))
	must(t, err)
	_, upload, _ := strings.Cut(where.Path, "/uploads/")
	offset, kills := 0, 0
	for offset < len(content) {
		body := &breaking{data: content[offset:], breakAt: -1}
		if kills < 3 {
			body.breakAt, body.do = 4<<20, func() { killRelay(t, s) }
			kills++
		}
		pid := s.Ready.Relays[0].PID
		resp, err := r.do(http.MethodPatch, "/uploads/"+upload, body, "Tus-Resumable", "1.0.0",
			"Upload-Offset", strconv.Itoa(offset), "Content-Type", "application/offset+octet-stream")
		if body.breakAt < 0 {
			must(t, err)
			if resp.StatusCode != http.StatusNoContent {
				t.Fatalf("status %d", resp.StatusCode)
			}
			break
		}
		awaitRelay(r.ctx, t, s, 0, pid)
		await(t, "the sandbox", func() bool {
			resp, err := r.do(http.MethodHead, "/uploads/"+upload, nil, "Tus-Resumable", "1.0.0")
			if err != nil || resp.StatusCode != http.StatusOK {
				return false
			}
			now, err := strconv.Atoi(resp.Header.Get("Upload-Offset"))
			must(t, err)
			if now < offset {
				t.Fatalf("it has gone back from %d to %d", offset, now)
			}
			offset = now
			return true
		})
		t.Logf("goes on at %d", offset)
	}
	got := r.want(http.StatusOK, http.MethodGet, "/file"+at("/large.bin"), nil)
	if sha256.Sum256(got) != sha256.Sum256(content) {
		t.Errorf("%d bytes, others than the %d that were sent", len(got), len(content))
	}
}

// breaking is a body that does something in its middle.
type breaking struct {
	data    []byte
	read    int
	breakAt int
	do      func()
}

func (b *breaking) Read(p []byte) (int, error) {
	if b.read == len(b.data) {
		return 0, io.EOF
	}
	n := copy(p, b.data[b.read:])
	if b.do != nil && b.read < b.breakAt && b.read+n >= b.breakAt {
		b.do()
		b.do = nil
	}
	b.read += n
	return n, nil
}
