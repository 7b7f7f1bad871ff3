package cli

import (
	"fmt"
	"strings"
	"time"
)

// dash stands in a table where there is no value.
const dash = "-"

// formatBytes is a number of bytes in the largest binary unit below it.
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

// formatDuration is a duration in its two largest units: 3d4h, 2h5m, 1m30s, 12s, 1.5s below ten seconds, and 350ms below one.
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

// orDash is text, or the sign for nothing.
func orDash(text string) string {
	if text == "" {
		return dash
	}
	return text
}

// formatCount is n, or the sign for nothing where 0 means that there is none.
func formatCount(n int) string {
	if n == 0 {
		return dash
	}
	return fmt.Sprint(n)
}

// oneLine makes a text fit a table cell: white space becomes one blank, and what is longer than limit runes is cut.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > limit {
		return strings.TrimRight(string(runes[:limit-1]), " ") + "…"
	}
	return text
}

// plural is "1 worker" or "3 workers".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
