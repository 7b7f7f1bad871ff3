package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/internal/format"
)

// outputFormat is the value of -o.
type outputFormat string

const (
	formatTable outputFormat = "table"
	formatWide  outputFormat = "wide" // a table with whole texts
	formatJSON  outputFormat = "json"
	formatName  outputFormat = "name" // the names of what is listed, one a line
)

var outputFormats = []string{string(formatTable), string(formatWide), string(formatJSON), string(formatName)}

// hasNames marks a command whose result namesOf knows.
const hasNames = "names"

// withNames makes c take -o name.
func withNames(c *cobra.Command) *cobra.Command {
	c.Annotations = map[string]string{hasNames: ""}
	return c
}

// namesOf returns the names of the things in the result of a command.
func namesOf(value any) []string {
	switch v := value.(type) {
	case api.PoolWorkers:
		return namesOf([]api.PoolWorkers{v})
	case []api.PoolWorkers:
		return namesBy(workersOf(v), func(w api.Worker) string { return w.Worker })
	case []poolSummary:
		return namesBy(v, func(p poolSummary) string { return p.Pool })
	case []hostRow:
		return namesBy(v, func(h hostRow) string { return h.Host })
	case *tempool.SessionList:
		return namesBy(v.Sessions, func(s tempool.SessionSummary) string { return s.ID })
	case []access.Token:
		return namesBy(v, func(t access.Token) string { return t.Name })
	case *tempool.Lease:
		return []string{v.ID}
	}
	return nil
}

func namesBy[T any](all []T, name func(T) string) (names []string) {
	for _, one := range all {
		names = append(names, name(one))
	}
	return names
}

// cellRunes bounds a text in a table's cell.
func (a *app) cellRunes() int {
	if a.format == formatWide {
		return maxWideRunes
	}
	return maxReasonRunes
}

// wantsJSON reports whether a command line that could not be parsed contains -o json.
func wantsJSON(args []string) bool {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	output := flags.StringP("output", "o", "", "")
	_ = flags.Parse(args) // the command's own parser has failed, and says why
	return *output == string(formatJSON)
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// writeJSONLine writes a value on one line.
func writeJSONLine(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// printResult prints the result of a command: value as JSON, or the text that write makes.
func (a *app) printResult(value any, write func(text *strings.Builder)) error {
	a.endProgress()
	if a.format == formatJSON {
		return writeJSON(a.out, value)
	}
	var text strings.Builder
	if a.format == formatName {
		for _, name := range namesOf(value) {
			fmt.Fprintln(&text, name)
		}
	} else {
		write(&text)
	}
	_, err := io.WriteString(a.out, printableLines(text.String()))
	return err
}

// Control characters, which could change the terminal, but for the tab, and in texts of several lines the line's end.
var (
	controls        = regexp.MustCompile(`[^\P{Cc}\t]`)
	controlsInLines = regexp.MustCompile(`[^\P{Cc}\t\n]`)
)

// printable shows control characters as they are written in Go. Names, reasons and output of programs are written by
// others.
func printable(text string) string { return controls.ReplaceAllStringFunc(text, written) }

// printableLines is printable for a text of several lines.
func printableLines(text string) string { return controlsInLines.ReplaceAllStringFunc(text, written) }

func written(control string) string { return fmt.Sprintf(`\x%02x`, []rune(control)[0]) }

// printMessage prints the result of a command: value as JSON, or one line of text.
func (a *app) printMessage(value any, format string, args ...any) error {
	return a.printResult(value, func(text *strings.Builder) { fmt.Fprintf(text, format+"\n", args...) })
}

// warn prints a warning to stderr; the command continues.
func (a *app) warn(message string) {
	a.endProgress()
	if a.format == formatJSON {
		_ = writeJSON(a.err, map[string]map[string]string{"warning": {"message": message}}) // as in fail
		return
	}
	fmt.Fprintf(a.err, "tempool: warning: %s\n", printableLines(message))
}

// showProgress prints the state of a wait to stderr: on a terminal as one line that is overwritten, elsewhere as one
// line per change, with -o json not at all.
func (a *app) showProgress(line string) {
	line = printable(strings.Join(strings.Fields(line), " "))
	if a.width > 1 { // a wrapped line cannot be overwritten
		line = oneLine(line, a.width-1)
	}
	if a.format == formatJSON || line == a.progressLine {
		return
	}
	a.progressLine = line
	if a.errTerminal {
		fmt.Fprintf(a.err, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(a.err, line)
}

// endProgress moves the terminal to a new line after the progress line.
func (a *app) endProgress() {
	if a.progressLine != "" && a.errTerminal {
		fmt.Fprintln(a.err)
	}
	a.progressLine = ""
}

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
