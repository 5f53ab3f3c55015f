package checks

import (
	"os/exec"
	"strings"
	"testing"
)

// programs are what make build builds.
var programs = []string{
	"./relay/cmd/relay", "./sandbox-agent/cmd/sandbox-agent", "./deploy/controlplane/cmd/controlplane",
	"./deploy/devstack/cmd/devstack", "./loadtest/cmd/loadtest",
}

// TestTelemetryIsLeftOut: without the tag otel no program contains OpenTelemetry,
// with it those that carry commands do.
func TestTelemetryIsLeftOut(t *testing.T) {
	for _, p := range programs {
		if found := telemetryIn(t, p); len(found) > 0 {
			t.Errorf("%s contains %q", p, found)
		}
	}
	for _, p := range programs[:3] {
		if len(telemetryIn(t, p, "-tags", "otel")) == 0 {
			t.Errorf("%s can't make spans with the tag otel", p)
		}
	}
}

// telemetryIn returns the packages of OpenTelemetry that a program contains.
func telemetryIn(t *testing.T, program string, flags ...string) (found []string) {
	t.Helper()
	list := exec.Command("go", append(append([]string{"list", "-deps"}, flags...), program)...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", program, err)
	}
	for dep := range strings.Lines(string(out)) {
		if strings.HasPrefix(dep, "go.opentelemetry.io/") {
			found = append(found, strings.TrimSpace(dep))
		}
	}
	return found
}
