package tools

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox/toolboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSchemas(t *testing.T) {
	toolboxtest.Schemas(t, &Terminals{}, map[string]any{
		"terminal_list": &listArgs{}, "terminal_read": &readArgs{}, "terminal_send": &sendArgs{}, "terminal_run": &runArgs{},
	})
}
