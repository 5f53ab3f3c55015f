//go:build !race

package cookies

const underRace = false
