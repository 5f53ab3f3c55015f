//go:build race

package gateway

// mostIdle bounds an idle viewer's memory, in bytes: with the race detector that isn't
// ours alone, so anything goes.
const mostIdle = 1 << 20
