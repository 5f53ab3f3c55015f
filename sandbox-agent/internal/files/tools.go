package files

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// Tools returns the tools, which are always the same.
func (f *Files) Tools(toolbox.Caller) []toolbox.Tool {
	s := tools{f}
	return []toolbox.Tool{
		tool(fileList, protocol.CapFilesRead, s.list),
		tool(fileRead, protocol.CapFilesRead, s.read),
		tool(fileSearch, protocol.CapFilesRead, s.search),
		tool(fileWrite, protocol.CapFilesWrite, s.write),
		tool(fileMkdir, protocol.CapFilesWrite, s.mkdir),
		tool(fileMove, protocol.CapFilesWrite, s.rename),
		tool(fileDelete, protocol.CapFilesWrite, s.remove),
	}
}
