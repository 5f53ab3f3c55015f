//go:build race

package lineindex

const underRace = true
