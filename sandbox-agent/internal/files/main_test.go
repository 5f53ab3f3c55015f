package files

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox/toolboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSchemas(t *testing.T) {
	toolboxtest.Schemas(t, &Files{}, map[string]any{
		"file_list": &fileListArgs{}, "file_read": &fileReadArgs{}, "file_search": &fileSearchArgs{},
		"file_write": &fileWriteArgs{}, "file_mkdir": &pathArgs{}, "file_move": &fileMoveArgs{}, "file_delete": &pathArgs{},
	})
}
