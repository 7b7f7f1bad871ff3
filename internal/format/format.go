// Package format writes sizes and durations for people.
package format

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Dash stands for a missing value.
const Dash = "-"

// Bytes formats a size in the largest binary unit below it; Dash for 0 and less.
func Bytes(bytes int64) string {
	if bytes <= 0 {
		return Dash
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

// Count formats a number of bytes that may be 0.
func Count(bytes int64) string {
	if bytes == 0 {
		return "0 B"
	}
	return Bytes(bytes)
}

// Duration formats a duration in its two largest units: 3d4h, 2h5m, 1m30s, 12s, 1.5s below ten seconds, 350ms below
// one; Dash for 0 and less.
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return Dash
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

// Plural is "1 worker", "3 workers" or "2 processes".
func Plural[N int | int64](n N, word string) string {
	switch {
	case n == 1:
		return "1 " + word
	case strings.HasSuffix(word, "s"):
		return fmt.Sprintf("%d %ses", n, word)
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// OneLine joins white space to single blanks. Of a text of more than limit runes it keeps the beginning, which mostly
// says what happened, and the end, which has a program's last output.
func OneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	tail := max(0, limit-1) / 2
	return strings.TrimRight(string(runes[:max(0, limit-1)-tail]), " ") + "…" +
		strings.TrimLeft(string(runes[len(runes)-tail:]), " ")
}

// Rate is how often something happens in a second: one digit after the point, below 1 two digits that are not 0.
func Rate(x float64) string {
	if x < 1 {
		x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 2, 64), 64)
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(math.Round(10*x)/10, 'f', -1, 64)
}

// Milliseconds is Duration for a number of milliseconds, with 0ms for 0.
func Milliseconds(ms float64) string {
	if ms <= 0 {
		return "0ms"
	}
	return Duration(time.Duration(ms * float64(time.Millisecond)))
}
