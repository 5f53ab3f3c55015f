//go:build !race

package gateway

// mostIdle bounds an idle viewer's memory, in bytes.
const mostIdle = 11<<10 + 512
