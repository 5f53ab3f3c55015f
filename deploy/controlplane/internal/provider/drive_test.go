package provider

import (
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"slices"
	"strings"
	"testing"
)

const driveFields = "fields=id,name,mimeType,description,size,createdTime,modifiedTime,parents,webViewLink,trashed&supportsAllDrives=true"

func TestDriveList(t *testing.T) {
	u := newUpstream(t)
	u.on("GET /drive/v3/files", 200, recorded(t, "drive_list.json"))
	answer := u.do("google_drive.list", `{"query":"it's a \\ plan","folder_id":"0AFolder","mime_type":"text/plain","page_size":2,"page_token":"~x"}`)
	sameJSON(t, "list", answer, `{"files":[
		{"id":"1AbC-dEf_1","name":"Plan","mimeType":"application/vnd.google-apps.document","createdTime":"2026-10-01T08:00:00.000Z","modifiedTime":"2026-11-01T08:00:00.000Z",
		 "parents":["0AFolder"],"webViewLink":"https://docs.google.com/document/d/1AbC-dEf_1/edit?usp=drivesdk"},
		{"id":"2","name":"Shared by somebody","mimeType":"text/plain","size":"12","createdTime":"2026-10-01T08:00:00.000Z","modifiedTime":"2026-11-01T08:00:00.000Z",
		 "webViewLink":"https://drive.google.com/file/d/2/view"}],"nextPageToken":"~!!~AI9FV7"}`)
	u.asked(`GET /drive/v3/files?fields=nextPageToken,files(id,name,mimeType,description,size,createdTime,modifiedTime,parents,webViewLink,trashed)&includeItemsFromAllDrives=true&pageSize=2&pageToken=~x` +
		`&q=trashed = false and (name contains 'it\'s a \\ plan' or fullText contains 'it\'s a \\ plan') and '0AFolder' in parents and mimeType = 'text/plain'&supportsAllDrives=true`)
	for folder, kept := range map[string]string{"0AFolder": "Plan", "": "Shared"} {
		rest, n, err := Filter(GoogleDrive, "google_drive.list", answer, func(_, value string) bool { return value == folder })
		if err != nil || n != 1 || !strings.Contains(string(rest), kept) {
			t.Errorf("%q: %s, %d, %v", folder, rest, n, err)
		}
	}
	if touched, err := Resources(GoogleDrive, "google_drive.list", []byte(`{"folder_id":"0AFolder"}`)); err != nil || !slices.Equal(touched, []Resource{{KindFolder, "0AFolder"}}) {
		t.Errorf("%v, %v", touched, err)
	}
}

func TestDriveDownload(t *testing.T) {
	u := newUpstream(t)
	about := func(id, mimeType, more string) string {
		u.on("GET /drive/v3/files/"+id, 200, `{"id":"`+id+`","name":"n","mimeType":"`+mimeType+`","parents":["0A"]`+more+`}`)
		return "GET /drive/v3/files/" + id + "?" + driveFields
	}
	first := about("doc", "application/vnd.google-apps.document", "")
	u.on("GET /drive/v3/files/doc/export", 200, "# Plan\n", "Content-Type", "text/markdown")
	u.want("google_drive.download", `{"file_id":"doc"}`,
		`{"id":"doc","name":"n","mimeType":"application/vnd.google-apps.document","parents":["0A"],"contentType":"text/markdown","encoding":"utf-8","content":"# Plan\n"}`)
	u.asked(first, "GET /drive/v3/files/doc/export?mimeType=text/markdown")
	u.on("GET /drive/v3/files/doc/export", 200, "%PDF\xff", "Content-Type", "application/pdf")
	if answer := u.do("google_drive.download", `{"file_id":"doc","mime_type":"application/pdf"}`); !strings.Contains(string(answer), `"encoding":"base64","content":"JVBERv8="`) {
		t.Errorf("%s", answer)
	}
	u.take()

	// The same path answers with the file itself when that is asked for.
	first = about("txt", "text/plain", `,"size":"5"`)
	u.on("GET /drive/v3/files/txt", 200, `{"id":"txt"}`)
	answer := u.do("google_drive.download", `{"file_id":"txt"}`)
	sameJSON(t, "media", answer, `{"id":"txt","contentType":"application/json; charset=UTF-8","encoding":"utf-8","content":"{\"id\":\"txt\"}"}`)
	u.asked(first, "GET /drive/v3/files/txt?alt=media&supportsAllDrives=true")

	about("dir", "application/vnd.google-apps.folder", "")
	if e := u.refused("google_drive.download", `{"file_id":"dir","mime_type":"text/plain"}`); e.Code != CodeInvalid {
		t.Errorf("%+v", e)
	}
	about("form", "application/vnd.google-apps.form", "")
	if e := u.refused("google_drive.download", `{"file_id":"form"}`); e.Code != CodeInvalid || e.Message != "a form has no content" {
		t.Errorf("%+v", e)
	}
	u.take()
	first = about("big", "video/mp4", `,"size":"3000000000"`)
	if e := u.refused("google_drive.download", `{"file_id":"big"}`); e.Code != CodeAPI {
		t.Errorf("%+v", e)
	}
	u.asked(first)
	rest, n, err := Filter(GoogleDrive, "google_drive.download", []byte(`{"id":"x","parents":["0B"],"content":"c"}`), func(_, v string) bool { return v == "0A" })
	if err != nil || n != 1 || string(rest) != "{}" {
		t.Errorf("%s, %d, %v", rest, n, err)
	}
}

// parts returns both parts of a multipart/related body, each after its type.
func parts(t *testing.T, s sent) []string {
	t.Helper()
	typ, params, err := mime.ParseMediaType(s.header.Get("Content-Type"))
	if err != nil || typ != "multipart/related" {
		t.Fatalf("%v, %v", s.header, err)
	}
	r := multipart.NewReader(strings.NewReader(s.body), params["boundary"])
	var list []string
	for {
		p, err := r.NextPart()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p.Header.Get("Content-Type")+" "+string(data))
	}
}

func TestDriveCreate(t *testing.T) {
	u := newUpstream(t)
	const made = `{"id":"9","name":"n","mimeType":"text/plain","parents":["0A"],"trashed":false}`
	u.on("POST /upload/drive/v3/files", 200, made)
	u.on("POST /drive/v3/files", 200, made)
	for _, test := range []struct {
		args string
		want []string
	}{
		{`{"name":"a.txt","content":"hi ä"}`, []string{`application/json; charset=UTF-8 {"name":"a.txt"}`, "text/plain; charset=UTF-8 hi ä"}},
		{`{"name":"a.md","mime_type":"text/markdown","folder_id":"0A","description":"d","content":"# hi"}`,
			[]string{`application/json; charset=UTF-8 {"name":"a.md","mimeType":"text/markdown","description":"d","parents":["0A"]}`, "text/markdown # hi"}},
		{`{"name":"Doc","mime_type":"application/vnd.google-apps.document","content":"hi","content_type":"text/html"}`,
			[]string{`application/json; charset=UTF-8 {"name":"Doc","mimeType":"application/vnd.google-apps.document"}`, "text/html hi"}},
		{`{"name":"Sheet","mime_type":"application/vnd.google-apps.spreadsheet","content":"a,b"}`,
			[]string{`application/json; charset=UTF-8 {"name":"Sheet","mimeType":"application/vnd.google-apps.spreadsheet"}`, "text/csv a,b"}},
		{`{"name":"bin","content":"AP8=","encoding":"base64"}`, []string{`application/json; charset=UTF-8 {"name":"bin"}`, "application/octet-stream \x00\xff"}},
		{`{"name":"empty","content":""}`, []string{`application/json; charset=UTF-8 {"name":"empty"}`, "text/plain; charset=UTF-8 "}},
	} {
		u.want("google_drive.create", test.args, `{"id":"9","name":"n","mimeType":"text/plain","parents":["0A"]}`)
		requests := u.take()
		if len(requests) != 1 || requests[0].line != "POST /upload/drive/v3/files?"+driveFields+"&uploadType=multipart" {
			t.Fatalf("%s: %+v", test.args, requests)
		}
		if got := parts(t, requests[0]); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.args, got, test.want)
		}
	}
	u.do("google_drive.create", `{"name":"Dir","mime_type":"application/vnd.google-apps.folder"}`)
	if s := u.take(); s[0].line != "POST /drive/v3/files?"+driveFields || s[0].body != `{"name":"Dir","mimeType":"application/vnd.google-apps.folder"}` {
		t.Errorf("%+v", s)
	}
	for _, args := range []string{
		`{"name":"d","mime_type":"application/vnd.google-apps.folder","content":""}`, `{"content":"x"}`, `{"name":"a","content":"%","encoding":"base64"}`,
		`{"name":"a","content":"x","content_type":"text/plain\r\nX: y"}`, `{"name":"a","folder_id":"a' or 'b"}`, `{"name":"a","content":"x","encoding":"hex"}`,
	} {
		if e := u.refused("google_drive.create", args); e.Code != CodeInvalid {
			t.Errorf("%s: %+v", args, e)
		}
	}
	for args, want := range map[string]string{`{"name":"a"}`: "root", `{"name":"a","folder_id":"0A"}`: "0A"} {
		if touched, err := Resources(GoogleDrive, "google_drive.create", []byte(args)); err != nil || !slices.Equal(touched, []Resource{{KindFolder, want}}) {
			t.Errorf("%s: %v, %v", args, touched, err)
		}
	}
}

// TestDriveRoot: Drive tells a top folder by its id; policies call it "root".
func TestDriveRoot(t *testing.T) {
	u := newUpstream(t)
	u.on("GET /drive/v3/files/root", 200, `{"id":"0Root"}`)
	u.on("GET /drive/v3/files/9", 200, `{"id":"9","parents":["0Root"]}`)
	u.on("GET /drive/v3/files", 200, `{"files":[{"id":"8","parents":["0A"]},{"id":"9","parents":["0Root"]}]}`)
	c := u.call("google_drive.list", `{"folder_id":"root"}`)
	c.NameRoot = true
	answer, err := Execute(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	rest, withheld, err := Filter(GoogleDrive, c.Action, answer, func(_, value string) bool { return value == "root" })
	if err != nil || withheld != 1 {
		t.Errorf("%d withheld, %v", withheld, err)
	}
	sameJSON(t, c.Action, rest, `{"files":[{"id":"9","parents":["root"]}]}`)
	c = u.call("google_drive.delete", `{"file_id":"9"}`)
	c.NameRoot = true
	if touched, err := Lookup(t.Context(), c); err != nil || !slices.Equal(touched, []Resource{{KindFolder, "root"}}) {
		t.Errorf("%v, %v", touched, err)
	}
	u.take()
	u.want("google_drive.get", `{"file_id":"9"}`, `{"id":"9","parents":["0Root"]}`) // nobody asked for the name
	if n := len(u.take()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestDriveUpdate(t *testing.T) {
	u := newUpstream(t)
	u.on("GET /drive/v3/files/9", 200, `{"id":"9","mimeType":"text/markdown","parents":["0A"]}`)
	u.on("PATCH /upload/drive/v3/files/9", 200, `{"id":"9"}`)
	u.on("PATCH /drive/v3/files/9", 200, `{"id":"9","trashed":true}`)
	u.on("DELETE /drive/v3/files/9", 204, ``)
	u.do("google_drive.update", `{"file_id":"9","content":"new"}`)
	s := u.take()
	if len(s) != 2 || s[1].line != "PATCH /upload/drive/v3/files/9?"+driveFields+"&uploadType=multipart" ||
		!slices.Equal(parts(t, s[1]), []string{"application/json; charset=UTF-8 {}", "text/markdown new"}) {
		t.Errorf("%+v", s)
	}
	u.do("google_drive.update", `{"file_id":"9","name":"other","description":""}`)
	if s := u.take(); s[0].line != "PATCH /drive/v3/files/9?"+driveFields || s[0].body != `{"name":"other","description":""}` {
		t.Errorf("%+v", s)
	}
	u.want("google_drive.delete", `{"file_id":"9"}`, `{"id":"9","deleted":true}`)
	if s := u.take(); s[0].line != "PATCH /drive/v3/files/9?"+driveFields || s[0].body != `{"trashed":true}` {
		t.Errorf("%+v", s)
	}
	u.want("google_drive.delete", `{"file_id":"9","permanent":true}`, `{"id":"9","deleted":true}`)
	u.asked("DELETE /drive/v3/files/9?supportsAllDrives=true")
	for _, action := range []string{"google_drive.update", "google_drive.delete"} {
		args, _ := json.Marshal(map[string]any{"file_id": "9"})
		if action == "google_drive.update" {
			args = []byte(`{"file_id":"9","name":"x"}`)
		}
		touched, err := Lookup(t.Context(), u.call(action, string(args)))
		if err != nil || !slices.Equal(touched, []Resource{{KindFolder, "0A"}}) {
			t.Errorf("%s: %v, %v", action, touched, err)
		}
	}
	u.take()
	if e := u.refused("google_drive.update", `{"file_id":"9"}`); e.Code != CodeInvalid {
		t.Errorf("%+v", e)
	}
	u.asked()
}
