package files

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// Routes adds the routes to mux.
func (f *Files) Routes(mux *http.ServeMux) {
	s := routes{f}
	const session = "/sessions/{sid}"
	for _, at := range []struct {
		pattern    string
		capability protocol.Capability
		handle     handler
	}{
		{"GET " + session + "/file", protocol.CapFilesRead, s.read}, // and HEAD
		{"PUT " + session + "/file", protocol.CapFilesWrite, s.write},
		{"DELETE " + session + "/file", protocol.CapFilesWrite, s.remove},
		{"GET " + session + "/file/stat", protocol.CapFilesRead, s.stat},
		{"GET " + session + "/files", protocol.CapFilesRead, s.list},
		{"GET " + session + "/files/archive", protocol.CapFilesRead, s.archive},
		{"GET " + session + "/files/watch", protocol.CapFilesRead, s.watch},
		{"POST " + session + "/files/mkdir", protocol.CapFilesWrite, s.mkdir},
		{"POST " + session + "/files/move", protocol.CapFilesWrite, s.rename},
		{"POST " + session + "/upload", protocol.CapFilesWrite, s.upload},
		{"POST " + session + "/uploads", protocol.CapFilesWrite, resumable(s.createUpload)},
		{"HEAD " + session + "/uploads/{uid}", protocol.CapFilesWrite, resumable(s.headUpload)},
		{"PATCH " + session + "/uploads/{uid}", protocol.CapFilesWrite, resumable(s.patchUpload)},
		{"DELETE " + session + "/uploads/{uid}", protocol.CapFilesWrite, resumable(s.dropUpload)},
	} {
		mux.HandleFunc(at.pattern, func(w http.ResponseWriter, r *http.Request) {
			caller := toolbox.Caller{Session: protocol.SessionID(r.PathValue("sid")), Grant: route.GrantOf(r)}
			if caller.Grant == nil || !caller.Allows("", at.capability) {
				reply.Error(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", at.capability))
				return
			}
			if err := at.handle(w, r, caller); err != nil {
				s.fail(w, r, err)
			}
		})
	}
}
