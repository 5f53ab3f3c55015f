// Package intake is what an HTTP listener of ours demands of those whom nobody
// knows yet: requests that all programs on the way read alike, bodies that come
// in time, and no more of anything than their address's share.
package intake
