//go:build race

package cookies

// underRace: the race detector takes half a minute for what one goroutine does in two
// seconds, and has memory of its own. Make test-speed runs such tests without it.
const underRace = true
