//go:build race

package gateway

// mostIdle bounds an idle viewer's memory, in bytes: the race detector has a share.
const mostIdle = 17 << 10
