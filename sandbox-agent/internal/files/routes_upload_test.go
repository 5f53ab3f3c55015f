package files

import (
	"crypto/sha1"
	"encoding/base64"
	"io"
	"strings"
	"testing"
)

func TestResumableUpload(t *testing.T) {
	r := newFilesRig(t)
	version, content := "Tus-Resumable: 1.0.0", "Content-Type: "+tusContent
	metadata := "Upload-Metadata: filename " + base64.StdEncoding.EncodeToString([]byte("big.bin")) + ",empty"
	resp, _ := r.do("POST /uploads?path=/to", nil, version, "Upload-Length: 10", metadata)
	location := strings.TrimPrefix(resp.Header.Get("Location"), "/sessions/"+filesSession)
	if resp.StatusCode != 201 || !strings.HasPrefix(location, "/uploads/") || resp.Header.Get("Tus-Resumable") != "1.0.0" || resp.Header.Get("Upload-Expires") == "" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	r.want(412, "HEAD "+location, "")
	r.want(415, "PATCH "+location, "0123", version, "Upload-Offset: 0")
	r.want(409, "PATCH "+location, "0123", version, content, "Upload-Offset: 1")
	r.want(400, "PATCH "+location, "0123", version, content)
	sum := sha1.Sum([]byte("0123"))
	checksum := "Upload-Checksum: sha1 " + base64.StdEncoding.EncodeToString(sum[:])
	r.want(460, "PATCH "+location, "01X3", version, content, "Upload-Offset: 0", checksum)
	r.want(400, "PATCH "+location, "0123", version, content, "Upload-Offset: 0", "Upload-Checksum: crc AAAA")
	r.want(204, "PATCH "+location, "0123", version, content, "Upload-Offset: 0", checksum)
	resp, _ = r.do("HEAD "+location, nil, version)
	if h := resp.Header; resp.StatusCode != 200 || h.Get("Upload-Offset") != "4" || h.Get("Upload-Length") != "10" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
	r.want(413, "PATCH "+location, "4567890", version, content, "Upload-Offset: 4")
	r.want(204, "PATCH "+location, "456789", version, content, "Upload-Offset: 4")
	if r.content("to/big.bin") != "0123456789" {
		t.Errorf("%q", r.content("to/big.bin"))
	}
	r.grant.Subject = "usr_2"
	r.want(404, "HEAD "+location, "", version)
	r.grant.Subject = "usr_1"
	r.want(204, "DELETE "+location, "", version)
	r.want(404, "DELETE "+location, "", version)

	r.want(413, "POST /uploads?path=x", "", version, "Upload-Length: 99999999")
	r.want(400, "POST /uploads?path=x", "", version)
	r.want(400, "POST /uploads", "", version, "Upload-Length: 1")
	r.want(400, "POST /uploads", "", version, "Upload-Length: 1", "Upload-Metadata: path !")
	r.want(409, "POST /uploads?path=to/big.bin&overwrite=false", "", version, "Upload-Length: 1")
	resp, _ = r.do("POST /uploads?path=at/once", strings.NewReader("text"), version, content, "Upload-Length: 4")
	if resp.StatusCode != 201 || resp.Header.Get("Upload-Offset") != "4" || r.content("at/once") != "text" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

func TestResumableUploadsTellTheirMetadata(t *testing.T) {
	r := newFilesRig(t)
	version, content := "Tus-Resumable: 1.0.0", "Content-Type: "+tusContent
	metadata := "path " + base64.StdEncoding.EncodeToString([]byte("f")) + ", note,kind dGV4dA=="
	resp, text := r.do("POST /uploads", nil, version, "Upload-Length: 2", "Upload-Metadata: "+metadata)
	location := strings.TrimPrefix(resp.Header.Get("Location"), "/sessions/"+filesSession)
	if resp.StatusCode != 201 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	for _, offset := range []string{"0", "1", "2"} {
		resp, _ = r.do("HEAD "+location, nil, version)
		if h := resp.Header; h.Get("Upload-Offset") != offset || h.Get("Upload-Metadata") != metadata {
			t.Errorf("%v", h)
		}
		if offset != "2" {
			r.want(204, "PATCH "+location, "x", version, content, "Upload-Offset: "+offset)
		}
	}
	resp, _ = r.do("POST /uploads?path=bare", nil, version, "Upload-Length: 2")
	resp, _ = r.do("HEAD "+strings.TrimPrefix(resp.Header.Get("Location"), "/sessions/"+filesSession), nil, version)
	if _, told := resp.Header["Upload-Metadata"]; told || resp.StatusCode != 200 {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

func TestConditionsOfResumableUploads(t *testing.T) {
	r := newFilesRig(t)
	version, content := "Tus-Resumable: 1.0.0", "Content-Type: "+tusContent
	r.put("f", "old")
	resp, _ := r.do("HEAD /file?path=f", nil)
	match := "If-Match: " + resp.Header.Get("ETag")
	create := func(query string, headers ...string) string {
		t.Helper()
		resp, text := r.do("POST /uploads?path="+query, nil, append(headers, version, "Upload-Length: 1")...)
		if resp.StatusCode != 201 {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
		return strings.TrimPrefix(resp.Header.Get("Location"), "/sessions/"+filesSession)
	}
	first, second := create("f", match), create("f", match)
	fresh, polite := create("g", "If-None-Match: *"), create("g&overwrite=false")
	r.want(204, "PATCH "+first, "1", version, content, "Upload-Offset: 0")
	r.put("g", "theirs")
	for _, location := range []string{second, fresh, polite} {
		r.want(412, "PATCH "+location, "2", version, content, "Upload-Offset: 0")
		r.want(404, "HEAD "+location, "", version) // it doesn't seem to be done
	}
	r.want(412, "POST /uploads?path=f", "", version, "Upload-Length: 1", match)
	r.want(412, "POST /uploads?path=f", "", version, "Upload-Length: 0", match)
	r.want(412, "POST /uploads?path=g", "", version, "Upload-Length: 1", "If-None-Match: *")
	if r.content("f")+r.content("g") != "1theirs" {
		t.Error("another's change was lost")
	}
	// The file comes while its bytes do, with the creation.
	late := readerFunc(func(p []byte) (int, error) {
		r.put("h", "theirs")
		return copy(p, "2"), io.EOF
	})
	resp, text := r.do("POST /uploads?path=h", late, version, content, "Upload-Length: 1", "If-None-Match: *")
	if resp.StatusCode != 412 || resp.Header.Get("Location") != "" || r.content("h") != "theirs" {
		t.Errorf("%d %s %v", resp.StatusCode, text, resp.Header)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
