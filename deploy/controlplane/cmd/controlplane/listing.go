package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// A listing is a list for people, or as JSON.
type listing struct {
	header string // separated by tabs
	rows   [][]string
	json   any
}

func (l listing) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, l.json)
	}
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tabs, l.header)
	for _, row := range l.rows {
		fmt.Fprintln(tabs, strings.Join(row, "\t"))
	}
	return tabs.Flush()
}

func printJSON(w io.Writer, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", data)
	}
	return err
}

const jsonUsage = "print JSON"

// stamp is a time in a list; the zero one is a dash.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// known returns a time for JSON, nil for the zero one.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// text is a word in a list; an empty one is a dash.
func text[T ~string](s T) string {
	if s == "" {
		return "-"
	}
	return string(s)
}
