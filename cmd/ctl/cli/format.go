package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	// dash stands for a missing value in a table.
	dash = "-"
	// maxReasonRunes bounds a reason in a table cell; pool status and JSON have the full reason.
	maxReasonRunes = 90
)

// table writes aligned columns without trailing blanks.
func table(text *strings.Builder, header []string, rows [][]string) {
	var padded strings.Builder
	aligned := tabwriter.NewWriter(&padded, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(aligned, strings.Join(row, "\t"))
	}
	_ = aligned.Flush() // writing to a strings.Builder never fails
	for line := range strings.Lines(padded.String()) {
		fmt.Fprintln(text, strings.TrimRight(line, " \n"))
	}
}

// formatBytes formats a size in the largest binary unit below it.
func formatBytes(bytes int64) string {
	if bytes <= 0 {
		return dash
	}
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/(1<<10), "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// formatDuration formats a duration in its two largest units: 3d4h, 2h5m, 1m30s, 12s, 1.5s below ten seconds, 350ms below one.
func formatDuration(d time.Duration) string {
	switch {
	case d <= 0:
		return dash
	case d < time.Millisecond:
		return fmt.Sprintf("%.2fms", d.Seconds()*1000)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// orDash returns text, or a dash if it is empty.
func orDash(text string) string {
	if text == "" {
		return dash
	}
	return text
}

// formatCount formats n, with a dash for 0.
func formatCount(n int) string {
	if n == 0 {
		return dash
	}
	return fmt.Sprint(n)
}

// oneLine makes a text fit a table cell: it joins white space to single blanks and cuts the text after limit runes.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > limit {
		return strings.TrimRight(string(runes[:limit-1]), " ") + "…"
	}
	return text
}

// indentLines indents all lines but the first, so that the end of a log stands apart from what follows.
func indentLines(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// plural is "1 worker" or "3 workers".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
