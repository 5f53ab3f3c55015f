package protocol

// A WebRoute is one that the web client of seed 002 uses and a sandbox answers:
// below /api/ at a relay, below /sessions/{sid}/api/ at the agent.
type WebRoute struct {
	Method, Path string // parts in braces match one part each
	Needs        Capability
}

// WebRoutes are all of them.
var WebRoutes = []WebRoute{
	{"GET", "projects", CapView},
	{"GET", "projects/archived", CapView},
	{"GET", "projects/{project}/sessions", CapView},
	{"GET", "projects/{project}/sessions/{id}/token-usage", CapView},
	{"POST", "projects/{project}/upload-images", CapChat},
	{"GET", "assets/{asset}", CapView},
	{"GET", "providers/capabilities", CapView},
	{"GET", "providers/search/sessions", CapView},
	{"GET", "providers/sessions/archived", CapView},
	{"GET", "providers/sessions/running", CapView},
	{"GET", "providers/sessions/recent", CapView},
	{"GET", "providers/sessions/{id}", CapView},
	{"PUT", "providers/sessions/{id}", CapChat},
	{"DELETE", "providers/sessions/{id}", CapChat},
	{"POST", "providers/sessions/{id}/restore", CapChat},
	{"GET", "providers/sessions/{id}/messages", CapView},
	{"GET", "providers/sessions/{id}/token-usage", CapView},
	{"GET", "providers/{provider}/capabilities", CapView},
	{"GET", "providers/{provider}/models", CapView},
	{"GET", "providers/{provider}/auth/status", CapView},
}
