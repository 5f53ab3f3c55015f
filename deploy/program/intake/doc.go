// Package intake protects HTTP listeners from unauthenticated clients: it
// refuses ambiguous requests, and bounds how long bodies take and how much one
// address may use.
package intake
