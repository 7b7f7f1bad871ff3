package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// outputFormat is how results are printed: the value of -o.
type outputFormat string

const (
	formatTable outputFormat = "table"
	formatJSON  outputFormat = "json"
)

// String is part of pflag.Value.
func (f *outputFormat) String() string { return string(*f) }

// Type is part of pflag.Value: what help shows for the value.
func (f *outputFormat) Type() string { return "table|json" }

// Set is part of pflag.Value.
func (f *outputFormat) Set(text string) error {
	switch outputFormat(text) {
	case formatTable, formatJSON:
		*f = outputFormat(text)
		return nil
	}
	return fmt.Errorf("write table or json")
}

// wantsJSON looks for -o json in a command line that could not be parsed.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch {
		case arg == "--":
			return false
		case (arg == "-o" || arg == "--output") && i+1 < len(args) && args[i+1] == string(formatJSON),
			arg == "--output=json", arg == "-o=json", arg == "-ojson":
			return true
		}
	}
	return false
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// printResult shows a command's result: value as JSON, or what table writes.
func (a *app) printResult(value any, table func(w io.Writer) error) error {
	a.endProgress()
	if a.format == formatJSON {
		return writeJSON(a.out, value)
	}
	return table(a.out)
}

// warn says something on stderr that the user should know although the command goes on.
func (a *app) warn(message string) {
	a.endProgress()
	if a.format == formatJSON {
		// As in fail: there is nobody else to tell.
		_ = writeJSON(a.err, map[string]map[string]string{"warning": {"message": message}})
		return
	}
	fmt.Fprintf(a.err, "ctl: warning: %s\n", message)
}

// showProgress tells how a wait goes: on a terminal in one line that changes, elsewhere in a line for each change. Programs that read
// JSON get none.
func (a *app) showProgress(line string) {
	line = strings.Join(strings.Fields(line), " ")
	if a.width > 1 { // a line that wraps cannot be written over
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

// endProgress leaves the changing line for good.
func (a *app) endProgress() {
	if a.progressLine != "" && a.errTerminal {
		fmt.Fprintln(a.err)
	}
	a.progressLine = ""
}
