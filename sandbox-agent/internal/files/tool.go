package files

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// tools are the tools of Files: file_list, file_read, file_search, file_write,
// file_mkdir, file_move and file_delete. People need the capability files.read
// or files.write. No answer holds a secret, and one that leaves secrets out says
// so.
type tools struct{ *Files }

// tool makes a tool of do, whose arguments are an A. Its caller has the
// capability need. An error of do without a kind counts as a fault of the agent.
func tool[A any](
	described protocol.Tool, need protocol.Capability, do func(context.Context, toolbox.Caller, A) (protocol.ToolResult, error),
) toolbox.Tool {
	call := func(ctx context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
		var a A
		if err := toolbox.Decode(args, &a); err != nil {
			return protocol.ToolResult{}, err
		}
		if err := caller.Permit("", need); err != nil {
			return protocol.ToolResult{}, err
		}
		result, err := do(ctx, caller, a)
		if err != nil {
			return protocol.ToolResult{}, protocol.AsError(err)
		}
		return result, nil
	}
	return toolbox.Tool{Tool: described, Needs: need, Call: call}
}
