package cli

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tempool/tempool/internal/buildinfo"
	"github.com/tempool/tempool/workflows"
)

// helpWidth bounds the lines of help, in characters.
const helpWidth = 100

func init() {
	cobra.AddTemplateFunc("wrapped", wrapped)
	cobra.AddTemplateFunc("flags", func(f *pflag.FlagSet) string {
		return strings.TrimRight(f.FlagUsagesWrapped(helpWidth), "\n")
	})
	cobra.AddTemplateFunc("version", versionText)
}

// helpTemplate and usageTemplate are cobra's, with lines that fit, and with the flags of all commands on the page of
// tempool only.
const (
	helpTemplate = `{{wrapped (or .Long .Short)}}

{{.UsageString}}`

	usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$c := .}}{{if .Groups}}{{range $group := .Groups}}

{{.Title}}{{range $c.Commands}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{else}}

Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasParent}}{{if .HasAvailableLocalFlags}}

Flags:
{{flags .LocalFlags}}{{end}}

tempool --help lists the flags of all commands, such as -o and --address.{{else}}

Flags of all commands:
{{flags .PersistentFlags}}
  -h, --help                    explain a command
      --version                 show the version{{end}}
`
)

// wrapped breaks the lines of a text. Paragraphs with a line that starts with a blank, or that has columns, stay as
// they are.
func wrapped(text string) string {
	var out []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") || strings.Contains(paragraph, "   ") {
			out = append(out, paragraph)
			continue
		}
		line, lines := "", []string{}
		for _, word := range strings.Fields(paragraph) {
			if line != "" && len([]rune(line))+1+len([]rune(word)) > helpWidth {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimSpace(line + " " + word)
		}
		out = append(out, strings.Join(append(lines, line), "\n"))
	}
	return strings.Join(out, "\n\n")
}

// versionText is what tempool --version prints. The state formats are those of the runs that this build writes, by
// workflow type; others are 1.
func versionText() string {
	v := buildinfo.Read()
	commit := cmp.Or(v.Commit, "unknown")
	if v.Modified {
		commit += " (modified)"
	}
	formats := "1"
	for _, name := range slices.Sorted(maps.Keys(workflows.StateFormats)) {
		formats += fmt.Sprintf(", %s %d", name, workflows.StateFormats[name])
	}
	var text strings.Builder
	table(&text, []string{"tempool", v.Version}, [][]string{{"commit", commit}, {"date", cmp.Or(v.Date, "unknown")},
		{"go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
		{"temporal sdk", cmp.Or(v.Temporal, "unknown")}, {"state formats", formats}})
	return text.String()
}
