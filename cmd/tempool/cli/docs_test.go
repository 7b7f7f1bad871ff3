package cli

import (
	"cmp"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

// TestTheDocumentationNamesExistingCommandsAndFlags reads the command lines of tempool in code, and the first words of
// those in sentences.
func TestTheDocumentationNamesExistingCommandsAndFlags(t *testing.T) {
	program := regexp.MustCompile(`(?:^|[\s("|]|bin/|cmd/)tempool +`)
	ends := regexp.MustCompile("[`#);&<>]|[.,:] |\"$")
	span := regexp.MustCompile("`([^`]+)`")
	lines := 0
	for file, text := range docs.Texts(t, "*.md", "docs/*.md", "docs/operations/*.md", "examples/*/README.md",
		"deploy/prometheus/alerts.yml", "docker-compose.temporal.yml") {
		text = strings.ReplaceAll(text, "\\\n", " ")
		fence := "" // the language of the block of code
		if !strings.HasSuffix(file, ".md") {
			fence = "sh"
		}
		for line := range strings.Lines(text) {
			if language, found := strings.CutPrefix(strings.TrimSpace(line), "```"); found {
				if fence == "" {
					fence = cmp.Or(language, "text")
				} else {
					fence = ""
				}
				continue
			}
			var sources []string
			switch fence {
			case "sh", "console":
				sources = append(sources, strings.TrimRight(line, "\n"))
			case "":
				for _, found := range span.FindAllStringSubmatch(line, -1) {
					sources = append(sources, found[1])
				}
			}
			for _, source := range sources {
				for i, call := range program.Split(source, -1) {
					if call = ends.Split(call, 2)[0]; i > 0 && regexp.MustCompile(`^[a-z]`).MatchString(call) {
						lines++
						checkCommandLine(t, call, file+": "+strings.TrimSpace(line))
					}
				}
			}
		}
	}
	require.Greater(t, lines, 150)
}

// checkCommandLine fails unless the command exists and takes the flags. Words such as get|set are alternatives.
func checkCommandLine(t *testing.T, line, where string) {
	t.Helper()
	line = strings.TrimSpace(strings.SplitN(strings.ReplaceAll(line, `\|`, " | "), " | ", 2)[0])
	words := strings.Fields(line)
	for i, word := range words {
		if !strings.HasPrefix(word, "-") && regexp.MustCompile(`^[a-z]+(\|[a-z]+)+$`).MatchString(word) {
			for alternative := range strings.SplitSeq(word, "|") {
				checkCommandLine(t, strings.Join(append(append(append([]string{}, words[:i]...), alternative), words[i+1:]...),
					" "), where)
			}
			return
		}
	}
	c, rest, err := (&app{}).root().Find(words)
	require.NoError(t, err, where)
	require.True(t, c.HasParent(), "%s: %s is no command of tempool", where, line)
	if c.HasSubCommands() && c.Name() != "completion" {
		require.Empty(t, rest, "%s: %s is no command of %s", where, line, c.CommandPath())
	}
	for _, word := range words {
		word, _, _ = strings.Cut(strings.TrimRight(word, ".,:'\""), "=")
		if name, long := strings.CutPrefix(word, "--"); long && name != "" {
			require.NotNil(t, flagOf(c, name), "%s: %s has no flag --%s", where, c.CommandPath(), name)
		} else if regexp.MustCompile(`^-[a-z]$`).MatchString(word) {
			c.InheritedFlags()
			require.NotNil(t, c.Flags().ShorthandLookup(word[1:]), "%s: %s has no flag %s", where, c.CommandPath(), word)
		}
	}
}

func flagOf(c *cobra.Command, name string) any {
	if name == "help" {
		return name
	}
	if f := c.Flag(name); f != nil {
		return f
	}
	if f := c.InheritedFlags().Lookup(name); f != nil {
		return f
	}
	return nil
}
