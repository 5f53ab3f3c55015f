package protocol

// SandboxMetrics is the answer of GET /sessions/{sid}/metrics as JSON: metrics
// of the agent and its machine.
type SandboxMetrics struct {
	Revision     string           `json:"revision"`
	UptimeMs     int64            `json:"uptime_ms"`
	Goroutines   int              `json:"goroutines"`
	HeapBytes    uint64           `json:"heap_bytes"`
	SysBytes     uint64           `json:"sys_bytes"`
	HeapMB       float64          `json:"heap_mb"`
	SysMB        float64          `json:"sys_mb"`
	SessionCount int              `json:"session_count"`
	PTYCount     int              `json:"pty_count"`
	Isolation    string           `json:"isolation"`
	Egress       EgressState      `json:"egress"`
	System       SystemMetrics    `json:"system"`
	CPUPercent   float64          `json:"system_cpu_pct"` // of all cores together, since the request before
	MemTotal     uint64           `json:"system_mem_total_bytes"`
	MemUsed      uint64           `json:"system_mem_used_bytes"`
	MemPercent   float64          `json:"system_mem_pct"`
	TopProcesses []ProcessMetrics `json:"top_processes"`
}

// SystemMetrics are the disk and load of the machine.
type SystemMetrics struct {
	Cores          int     `json:"cores"`
	Load1          float64 `json:"load1"`
	WorkspaceTotal uint64  `json:"workspace_total_bytes"`
	WorkspaceFree  uint64  `json:"workspace_free_bytes"`
}

// ProcessMetrics are those of one process below the sandbox's terminals.
type ProcessMetrics struct {
	PID        int     `json:"pid"`
	Name       string  `json:"name"`
	PTYID      PTYID   `json:"pty_id,omitempty"`
	CPUPercent float64 `json:"cpu_pct"`
	MemPercent float64 `json:"mem_pct"`
	Combined   float64 `json:"combined"` // the sum, by which they are sorted
	RSSBytes   uint64  `json:"rss_bytes"`
}
