package sandboxapi

import (
	"net/http"
	"strconv"
)

// maxUploadBytes is the agents' limit for one resumable upload, in bytes.
const maxUploadBytes = 10 << 30

// tusOptions answers OPTIONS on the upload routes with the supported part of
// the protocol (tus 1.0.0). Clients ask before they have a credential.
func tusOptions(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Tus-Resumable", "1.0.0")
	h.Set("Tus-Version", "1.0.0")
	h.Set("Tus-Extension", "creation,creation-with-upload,expiration,termination,checksum")
	h.Set("Tus-Max-Size", strconv.FormatInt(maxUploadBytes, 10))
	h.Set("Tus-Checksum-Algorithm", "sha1,sha256")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}
