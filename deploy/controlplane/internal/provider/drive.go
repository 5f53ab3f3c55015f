package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

var driveActions = []action{
	filtered(reads("google_drive.list", listFiles), func(f *files, keep func(kind, value string) bool) int {
		return withhold(&f.Files, func(one file) bool { return one.kept(keep) })
	}),
	filtered(reads("google_drive.get", getDriveFile), withholdFile),
	filtered(reads("google_drive.download", downloadFile), withholdFile),
	writes("google_drive.create", createFile),
	after(writes("google_drive.update", updateFile), func(ctx context.Context, a *api, args *updateFileArgs) ([]Resource, error) {
		return a.folders(ctx, &args.fileID)
	}),
	after(writes("google_drive.delete", deleteFile), func(ctx context.Context, a *api, args *deleteFileArgs) ([]Resource, error) {
		return a.folders(ctx, &args.fileID)
	}),
}

const (
	folderType   = "application/vnd.google-apps.folder"
	googleTypes  = "application/vnd.google-apps."
	driveFiles   = "/drive/v3/files"
	driveUploads = "/upload/drive/v3/files"
	fileMembers  = "id,name,mimeType,description,size,createdTime,modifiedTime,parents,webViewLink,trashed"
)

// A file is one as Google Drive writes it, as far as we pass it on.
type file struct {
	ID          string   `json:"id,omitempty"` // absent: all of it is withheld
	Name        string   `json:"name,omitempty"`
	MIMEType    string   `json:"mimeType,omitempty"`
	Description string   `json:"description,omitempty"`
	Size        string   `json:"size,omitempty"` // in bytes; absent for Google's own formats
	CreatedTime string   `json:"createdTime,omitempty"`
	Modified    string   `json:"modifiedTime,omitempty"`
	Parents     []string `json:"parents,omitempty"` // absent: shared by somebody whose folder can't be seen
	Link        string   `json:"webViewLink,omitempty"`
	Trashed     bool     `json:"trashed,omitempty"`

	// Ours, of download.
	ContentType string `json:"contentType,omitempty"`
	Encoding    string `json:"encoding,omitempty"`
	Content     string `json:"content,omitempty"`
}

// resources are the folders that hold the file directly.
func (f *file) resources() []Resource {
	if len(f.Parents) == 0 {
		return []Resource{{KindFolder, ""}}
	}
	touched := make([]Resource, len(f.Parents))
	for i, id := range f.Parents {
		touched[i] = Resource{KindFolder, id}
	}
	return touched
}

// kept reports whether a folder of the file may be seen.
func (f *file) kept(keep func(kind, value string) bool) bool {
	return slices.ContainsFunc(f.resources(), func(r Resource) bool { return keep(r.Kind, r.Value) })
}

func withholdFile(f *file, keep func(kind, value string) bool) int {
	if f.kept(keep) {
		return 0
	}
	*f = file{}
	return 1
}

type files struct {
	Files    []file `json:"files"`
	NextPage string `json:"nextPageToken,omitempty"`
}

type listFilesArgs struct {
	Query     string `json:"query,omitempty"`
	Folder    string `json:"folder_id,omitempty"`
	MIMEType  string `json:"mime_type,omitempty"`
	PageSize  int    `json:"page_size,omitempty"`
	PageToken string `json:"page_token,omitempty"`
}

func (l *listFilesArgs) check() error {
	if l.Folder != "" {
		if err := checkID("folder_id", l.Folder); err != nil {
			return err
		}
	}
	return firstError(checkText("query", l.Query, 1024), checkText("mime_type", l.MIMEType, 128),
		checkCount("page_size", l.PageSize, 100), checkText("page_token", l.PageToken, 2048))
}

func (l *listFilesArgs) resources() []Resource {
	if l.Folder == "" {
		return nil
	}
	return []Resource{{KindFolder, l.Folder}}
}

// clauses is what Drive is to look for, in its query language.
func (l *listFilesArgs) clauses() string {
	clauses := []string{"trashed = false"}
	if l.Query != "" {
		q := quoted(l.Query)
		clauses = append(clauses, "(name contains "+q+" or fullText contains "+q+")")
	}
	if l.Folder != "" {
		clauses = append(clauses, quoted(l.Folder)+" in parents")
	}
	if l.MIMEType != "" {
		clauses = append(clauses, "mimeType = "+quoted(l.MIMEType))
	}
	return strings.Join(clauses, " and ")
}

// quoted returns text as a string of Drive's query language.
func quoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

func listFiles(ctx context.Context, a *api, args *listFilesArgs) (*files, error) {
	q := url.Values{
		"q": {args.clauses()}, "pageSize": {strconv.Itoa(or(args.PageSize, 25))},
		"fields":                    {"nextPageToken,files(" + fileMembers + ")"},
		"supportsAllDrives":         {"true"},
		"includeItemsFromAllDrives": {"true"},
	}
	setUnlessEmpty(q, "pageToken", args.PageToken)
	found := &files{Files: []file{}}
	if _, err := a.json(ctx, request{method: http.MethodGet, path: driveFiles, query: q}, nil, found); err != nil {
		return nil, err
	}
	return found, a.callRoot(ctx, found.Files)
}

// callRoot names the top folder of files "root" where that is wanted: Drive
// takes that name, but answers with the folder's id.
func (a *api) callRoot(ctx context.Context, list []file) error {
	if !a.nameRoot || !slices.ContainsFunc(list, func(f file) bool { return len(f.Parents) > 0 }) {
		return nil
	}
	var root struct {
		ID string `json:"id"`
	}
	q := url.Values{"fields": {"id"}}
	if _, err := a.json(ctx, request{method: http.MethodGet, path: driveFiles + "/root", query: q}, nil, &root); err != nil {
		return err
	}
	for _, f := range list {
		for i, id := range f.Parents {
			if id == root.ID {
				f.Parents[i] = "root"
			}
		}
	}
	return nil
}

type fileID struct {
	File string `json:"file_id"`
}

func (f *fileID) check() error { return checkID("file_id", f.File) }

func (f *fileID) path() string { return driveFiles + "/" + f.File }

// oneFile are the parameters of requests that answer with a file.
func oneFile() url.Values {
	return url.Values{"fields": {fileMembers}, "supportsAllDrives": {"true"}}
}

func getDriveFile(ctx context.Context, a *api, args *fileID) (*file, error) {
	found := &file{}
	if _, err := a.json(ctx, request{method: http.MethodGet, path: args.path(), query: oneFile()}, nil, found); err != nil {
		return nil, err
	}
	return found, a.callRoot(ctx, []file{*found}) // they share their parents
}

// folders looks up where a file is.
func (a *api) folders(ctx context.Context, id *fileID) ([]Resource, error) {
	found, err := getDriveFile(ctx, a, id)
	if err != nil {
		return nil, err
	}
	return found.resources(), nil
}

type downloadArgs struct {
	fileID
	MIMEType string `json:"mime_type,omitempty"` // what a document of Google's is to become
}

func (d *downloadArgs) check() error {
	return firstError(d.fileID.check(), checkText("mime_type", d.MIMEType, 128))
}

// exportTypes are what Google's own formats become unless something else is
// asked for.
var exportTypes = map[string]string{
	googleTypes + "document":     "text/markdown",
	googleTypes + "spreadsheet":  "text/csv", // its first sheet
	googleTypes + "presentation": "text/plain",
	googleTypes + "drawing":      "image/png",
	googleTypes + "script":       "application/vnd.google-apps.script+json",
}

func downloadFile(ctx context.Context, a *api, args *downloadArgs) (*file, error) {
	found, err := getDriveFile(ctx, a, &args.fileID)
	if err != nil {
		return nil, err
	}
	r := request{method: http.MethodGet, path: args.path(), query: url.Values{"alt": {"media"}, "supportsAllDrives": {"true"}}, accept: "*/*"}
	if strings.HasPrefix(found.MIMEType, googleTypes) {
		as := or(args.MIMEType, exportTypes[found.MIMEType])
		if found.MIMEType == folderType || as == "" {
			return nil, invalid("a %s has no content", strings.TrimPrefix(found.MIMEType, googleTypes))
		}
		r.path, r.query = args.path()+"/export", url.Values{"mimeType": {as}}
	} else if size, err := strconv.ParseInt(found.Size, 10, 64); err == nil && size > maxContent {
		return nil, failed("the file is larger than %d bytes", maxContent)
	}
	ans, err := a.do(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(ans.body) > maxContent {
		return nil, failed("the file is larger than %d bytes", maxContent)
	}
	found.ContentType = ans.header.Get("Content-Type")
	found.Content, found.Encoding = encodeContent(ans.body)
	return found, nil
}

// fileContent is what a file is to hold.
type fileContent struct {
	Content     *string `json:"content,omitempty"`
	Encoding    string  `json:"encoding,omitempty"`     // of content: utf-8 or base64
	ContentType string  `json:"content_type,omitempty"` // of content
}

func (c *fileContent) check() error {
	if c.Content == nil {
		return nil
	}
	if _, err := decodeContent(*c.Content, c.Encoding); err != nil {
		return err
	}
	return firstError(checkOneOf("encoding", c.Encoding, encodingText, encodingBase64), checkMIMEType("content_type", c.ContentType))
}

func checkMIMEType(name, typ string) error {
	if typ == "" {
		return nil
	}
	major, minor, ok := strings.Cut(typ, "/")
	if !ok || major == "" || minor == "" || strings.ContainsFunc(typ, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return invalid("%s is not a MIME type", name)
	}
	return checkText(name, typ, 128)
}

// A fileBody is what is said of a file beside its content.
type fileBody struct {
	Name        string   `json:"name,omitempty"`
	MIMEType    string   `json:"mimeType,omitempty"`
	Description *string  `json:"description,omitempty"`
	Parents     []string `json:"parents,omitempty"`
	Trashed     bool     `json:"trashed,omitempty"`
}

// upload sends a file, with its content if it has some: then both go in one
// request of two parts.
func (c *fileContent) upload(ctx context.Context, a *api, method, path string, body fileBody) (*file, error) {
	written := &file{}
	r := request{method: method, path: driveFiles + path, query: oneFile()}
	if c.Content == nil {
		_, err := a.json(ctx, r, body, written)
		return written, err
	}
	content, err := decodeContent(*c.Content, c.Encoding)
	if err != nil {
		return nil, err
	}
	if r.body, r.typ, err = related(body, c.contentType(body.MIMEType), content); err != nil {
		return nil, err
	}
	r.path = driveUploads + path
	r.query.Set("uploadType", "multipart")
	ans, err := a.do(ctx, r)
	if err != nil {
		return nil, err
	}
	return written, decode(ans.body, written)
}

// contentType returns of what type the content is, which for a file in one of
// Google's formats is what it is converted from.
func (c *fileContent) contentType(fileType string) string {
	switch {
	case c.ContentType != "":
		return c.ContentType
	case fileType == googleTypes+"spreadsheet":
		return "text/csv"
	case fileType != "" && !strings.HasPrefix(fileType, googleTypes):
		return fileType
	case c.Encoding == encodingBase64:
		return "application/octet-stream"
	}
	return "text/plain; charset=UTF-8"
}

// related returns a body of multipart/related (RFC 2387): JSON, then content.
func related(about any, contentType string, content []byte) (body []byte, typ string, err error) {
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	head, err := json.Marshal(about)
	if err != nil {
		return nil, "", err
	}
	for _, part := range []struct {
		typ  string
		data []byte
	}{{"application/json; charset=UTF-8", head}, {contentType, content}} {
		to, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {part.typ}})
		if err != nil {
			return nil, "", err
		}
		if _, err := to.Write(part.data); err != nil {
			return nil, "", err
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	return buf.Bytes(), "multipart/related; boundary=" + w.Boundary(), nil
}

type createFileArgs struct {
	Name        string  `json:"name"`
	MIMEType    string  `json:"mime_type,omitempty"`
	Folder      string  `json:"folder_id,omitempty"` // without it: the top one
	Description *string `json:"description,omitempty"`
	fileContent
}

func (c *createFileArgs) check() error {
	if c.Folder != "" {
		if err := checkID("folder_id", c.Folder); err != nil {
			return err
		}
	}
	if c.MIMEType == folderType && c.Content != nil {
		return invalid("a folder has no content")
	}
	return firstError(checkLine("name", c.Name, 1024), checkMIMEType("mime_type", c.MIMEType),
		checkText("description", value(c.Description), maxDescription), c.fileContent.check())
}

func (c *createFileArgs) resources() []Resource {
	return []Resource{{KindFolder, or(c.Folder, "root")}}
}

func createFile(ctx context.Context, a *api, args *createFileArgs) (*file, error) {
	body := fileBody{Name: args.Name, MIMEType: args.MIMEType, Description: args.Description}
	if args.Folder != "" {
		body.Parents = []string{args.Folder}
	}
	return args.upload(ctx, a, http.MethodPost, "", body)
}

type updateFileArgs struct {
	fileID
	Name        string  `json:"name,omitempty"`
	Description *string `json:"description,omitempty"`
	fileContent
}

func (u *updateFileArgs) check() error {
	if u.Name == "" && u.Description == nil && u.Content == nil {
		return invalid("nothing is to be changed")
	}
	if u.Name != "" {
		if err := checkLine("name", u.Name, 1024); err != nil {
			return err
		}
	}
	return firstError(u.fileID.check(), checkText("description", value(u.Description), maxDescription), u.fileContent.check())
}

// updateFile keeps a file's type unless another is named: Drive would take that
// of the content.
func updateFile(ctx context.Context, a *api, args *updateFileArgs) (*file, error) {
	if args.Content != nil && args.ContentType == "" {
		found, err := getDriveFile(ctx, a, &args.fileID)
		if err != nil {
			return nil, err
		}
		args.ContentType = args.contentType(found.MIMEType)
	}
	return args.upload(ctx, a, http.MethodPatch, "/"+args.File, fileBody{Name: args.Name, Description: args.Description})
}

type deleteFileArgs struct {
	fileID
	Permanent bool `json:"permanent,omitempty"`
}

// deleteFile puts a file into the bin, from which a person can take it back,
// unless it is to be gone for good.
func deleteFile(ctx context.Context, a *api, args *deleteFileArgs) (*deleted, error) {
	if !args.Permanent {
		none := fileContent{}
		_, err := none.upload(ctx, a, http.MethodPatch, "/"+args.File, fileBody{Trashed: true})
		return &deleted{args.File, true}, err
	}
	q := url.Values{"supportsAllDrives": {"true"}}
	_, err := a.json(ctx, request{method: http.MethodDelete, path: args.path(), query: q}, nil, nil)
	return &deleted{args.File, true}, err
}
