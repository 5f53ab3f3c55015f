// Package impair is a bad network in a process: a way to a UDP or TCP address
// that delays, limits, loses, duplicates, reorders and interrupts, the same
// way again for the same seed.
package impair
