// Package services answers what relays ask of a sandbox over HTTP, beside its
// terminals: under the grant of each request, and so that nothing that a
// sandbox made is ever shown as a page.
package services
