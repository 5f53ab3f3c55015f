// Package tools holds the tools that work on a session's terminals, for coding
// agents and for people's MCP clients. They do what relays may ask for over other
// routes, under the same capabilities and masks.
package tools
