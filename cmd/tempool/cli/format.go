package cli

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tempool/tempool/internal/format"
)

const (
	// dash stands for a missing value in a table.
	dash = format.Dash
	// maxReasonRunes bounds a reason in a table cell; pool status and JSON have the full reason.
	maxReasonRunes = 90
	// maxWideRunes bounds it with -o wide.
	maxWideRunes = 4000
)

// table writes aligned columns without trailing blanks. Cells are printable.
func table(text *strings.Builder, header []string, rows [][]string) {
	var padded strings.Builder
	aligned := tabwriter.NewWriter(&padded, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(aligned, printable(strings.Join(row, "\t")))
	}
	_ = aligned.Flush() // writing to a strings.Builder never fails
	for line := range strings.Lines(padded.String()) {
		fmt.Fprintln(text, strings.TrimRight(line, " \n"))
	}
}

// tableOf writes a table with a row for each item.
func tableOf[T any](text *strings.Builder, header []string, items []T, row func(T) []string) {
	var rows [][]string
	for _, item := range items {
		rows = append(rows, row(item))
	}
	table(text, header, rows)
}

// formatBytes formats a size in the largest binary unit below it.
func formatBytes(bytes int64) string { return format.Bytes(bytes) }

// formatDuration formats a duration in its two largest units.
func formatDuration(d time.Duration) string { return format.Duration(d) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// orDash returns text, or a dash if it is empty.
func orDash(text string) string {
	return cmp.Or(text, dash)
}

// formatCount formats n, with a dash for 0.
func formatCount(n int) string {
	if n == 0 {
		return dash
	}
	return fmt.Sprint(n)
}

// oneLine makes a text fit a table cell: it joins white space to single blanks and cuts the text after limit runes.
func oneLine(text string, limit int) string { return format.OneLine(text, limit) }

// indentLines indents all lines but the first, so that the end of a log is distinct from what follows.
func indentLines(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// plural is "1 worker" or "3 workers".
func plural(n int, word string) string { return format.Plural(n, word) }
