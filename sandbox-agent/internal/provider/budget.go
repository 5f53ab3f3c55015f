package provider

import "github.com/fairlead/fairlead/protocol"

// claudeWindow is the context of Claude Code's models in tokens, where nobody
// says otherwise (seed 002).
const claudeWindow = 160_000

// claudeBudget is the use of the context when a turn has ended: latest is that of
// the last request to the model, whose tokens are what the context holds. It is
// nil if it is unknown. window is what somebody has set, or 0.
func claudeBudget(latest usage, model string, window int64, end *claudeResult) *protocol.TokenBudget {
	if latest == (usage{}) && end.Usage != nil {
		latest = *end.Usage
	}
	if latest == (usage{}) {
		return nil
	}
	if window <= 0 {
		window = end.ModelUsage[model].ContextWindow
	}
	if window <= 0 {
		window = claudeWindow
	}
	return latest.budget(window)
}

// budget is what u comes to in a context of total tokens; 0: of unknown size.
func (u usage) budget(total int64) *protocol.TokenBudget {
	input := u.Input + u.CacheRead + u.CacheCreation
	return &protocol.TokenBudget{
		Used: input + u.Output, Total: total, InputTokens: input, OutputTokens: u.Output,
		CacheReadTokens: u.CacheRead, CacheCreationTokens: u.CacheCreation,
		Breakdown: protocol.TokenBreakdown{Input: input, Output: u.Output},
	}
}
