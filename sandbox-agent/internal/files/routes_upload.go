package files

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// Resumable uploads speak tus 1.0.0 with the extensions creation,
// creation-with-upload, expiration, termination and checksum (sha1, sha256).
// Relays answer OPTIONS.
const (
	tusVersion = "1.0.0"
	tusContent = "application/offset+octet-stream"
)

// resumable returns handle for requests of the protocol's version only.
func resumable(handle handler) handler {
	return func(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error {
		w.Header().Set("Tus-Resumable", tusVersion)
		w.Header().Set("Cache-Control", "no-store")
		if r.Header.Get("Tus-Resumable") != tusVersion {
			w.Header().Set("Tus-Version", tusVersion)
			reply.ErrorAs(w, http.StatusPreconditionFailed,
				protocol.Errorf(protocol.KindUnsupported, "Tus-Resumable must be %s", tusVersion))
			return nil
		}
		return handle(w, r, caller)
	}
}

// createUpload is POST /sessions/{sid}/uploads. Upload-Metadata names the file
// by "path", or by "filename" in the folder of the query's path; with the
// query's overwrite=false there must be none. If-Match and If-None-Match: * must
// hold now, and when the file takes its place.
func (s routes) createUpload(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error {
	size, err := strconv.ParseInt(r.Header.Get("Upload-Length"), 10, 64)
	if err != nil || size < 0 {
		return protocol.Errorf(protocol.KindInvalid, "Upload-Length must be the size in bytes")
	}
	o, err := writeOptions(r)
	if err != nil {
		return err
	}
	metadata := strings.Join(r.Header.Values("Upload-Metadata"), ",")
	target, err := uploadTarget(r, metadata)
	if err != nil {
		return err
	}
	state, err := s.FS.CreateUpload(workspace.UploadRequest{
		Path: target, Size: size, Subject: string(caller.Grant.Subject), WriteOptions: o, Metadata: metadata,
	})
	if err != nil {
		return err
	}
	w.Header().Set("Location", strings.TrimSuffix(r.URL.Path, "/")+"/"+state.ID)
	if r.Header.Get("Content-Type") == tusContent && state.Offset < state.Size {
		// Bytes that come with it are an offer: what was kept of them is
		// said by a HEAD, for the upload is there.
		if more, err := s.FS.Append(state.ID, string(caller.Grant.Subject), 0, r.Body, nil); err == nil {
			state = more
		} else if errors.Is(err, workspace.ErrPrecondition) {
			w.Header().Del("Location") // it is gone again
			return err
		} else if state, err = s.FS.Upload(state.ID, string(caller.Grant.Subject)); err != nil {
			return err
		}
	}
	describe(w.Header(), state)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// uploadTarget returns the path that a creation names.
func uploadTarget(r *http.Request, header string) (string, error) {
	metadata, err := parseMetadata(header)
	if err != nil {
		return "", err
	}
	if p := metadata["path"]; p != "" {
		return p, nil
	}
	if name := metadata["filename"]; name != "" {
		return strings.TrimSuffix(folderPath(r), "/") + "/" + name, nil
	}
	if p := r.URL.Query().Get("path"); p != "" {
		return p, nil
	}
	return "", protocol.Errorf(protocol.KindInvalid, "Upload-Metadata names no file")
}

// parseMetadata decodes pairs of a key and a value in base64.
func parseMetadata(header string) (map[string]string, error) {
	metadata := make(map[string]string)
	for pair := range strings.SplitSeq(header, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(pair), " ")
		text, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "a value of Upload-Metadata is not base64")
		}
		if _, twice := metadata[key]; twice {
			return nil, protocol.Errorf(protocol.KindInvalid, "a key of Upload-Metadata appears twice")
		}
		metadata[key] = string(text)
	}
	return metadata, nil
}

// describe sets the headers that say how far an upload is.
func describe(h http.Header, state workspace.UploadState) {
	h.Set("Upload-Offset", strconv.FormatInt(state.Offset, 10))
	h.Set("Upload-Expires", state.Expires.UTC().Format(http.TimeFormat))
	if state.Done != nil {
		h.Set("ETag", state.Done.Info.ETag)
	}
}

// headUpload is HEAD /sessions/{sid}/uploads/{uid}.
func (s routes) headUpload(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error {
	state, err := s.FS.Upload(r.PathValue("uid"), string(caller.Grant.Subject))
	if err != nil {
		return err
	}
	describe(w.Header(), state)
	w.Header().Set("Upload-Length", strconv.FormatInt(state.Size, 10))
	if state.Metadata != "" {
		w.Header().Set("Upload-Metadata", state.Metadata)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// patchUpload is PATCH /sessions/{sid}/uploads/{uid}. The one that brings the
// last byte gives the file its place. When a condition of the creation doesn't
// hold then, the answer is 412, also to overwrite=false since 409 is about the
// offset, and the upload is no more: its offset would say that it is done.
func (s routes) patchUpload(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error {
	if r.Header.Get("Content-Type") != tusContent {
		reply.ErrorAs(w, http.StatusUnsupportedMediaType, protocol.Errorf(protocol.KindInvalid, "the content must be %s", tusContent))
		return nil
	}
	offset, err := strconv.ParseInt(r.Header.Get("Upload-Offset"), 10, 64)
	if err != nil || offset < 0 {
		return protocol.Errorf(protocol.KindInvalid, "Upload-Offset must be a count of bytes")
	}
	sum, err := parseChecksum(r.Header.Get("Upload-Checksum"))
	if err != nil {
		return err
	}
	state, err := s.FS.Append(r.PathValue("uid"), string(caller.Grant.Subject), offset, r.Body, sum)
	if errors.Is(err, workspace.ErrPrecondition) {
		reply.ErrorAs(w, http.StatusPreconditionFailed, err)
		return nil
	}
	if err != nil {
		return err
	}
	describe(w.Header(), state)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// parseChecksum decodes the name of a hash and a sum in base64; "" is none.
func parseChecksum(header string) (*workspace.Checksum, error) {
	if header == "" {
		return nil, nil
	}
	name, value, _ := strings.Cut(header, " ")
	sum, err := base64.StdEncoding.DecodeString(value)
	makers := map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New}
	if makers[name] == nil || err != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "Upload-Checksum must be sha1 or sha256 and a sum in base64")
	}
	return &workspace.Checksum{Hash: makers[name](), Sum: sum}, nil
}

// dropUpload is DELETE /sessions/{sid}/uploads/{uid}.
func (s routes) dropUpload(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error {
	err := s.FS.DropUpload(r.PathValue("uid"), string(caller.Grant.Subject))
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
