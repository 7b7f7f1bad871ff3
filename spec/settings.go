package spec

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Setting is one key of a file of settings, with its decoded value.
type Setting struct {
	Key   string
	Line  int
	Value any
}

// Settings reads a TOML file without sections, such as an agent.toml. Its keys must be among known. An error about the
// content is a *Error.
func Settings(path string, known []string) ([]Setting, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	settings, e := parseSettings(trimBOM(data), known)
	if e != nil {
		e.File = path
		return nil, e
	}
	return settings, nil
}

func parseSettings(data []byte, known []string) ([]Setting, *Error) {
	if len(data) > maxFile {
		return nil, &Error{Problem: fmt.Sprintf("the file is larger than %s", Bytes(maxFile))}
	}
	mentions, badLine, err := locate(data)
	if err != nil {
		return nil, &Error{Line: badLine, Problem: "invalid TOML: " + err.Error()}
	}
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		return nil, decodeError(err, mentions)
	}
	var settings []Setting
	for _, m := range mentions {
		switch key := m.parts[0]; {
		case !slices.Contains(known, key):
			near := closest(strings.ReplaceAll(key, "-", "_"), known)
			return nil, &Error{Line: m.line, Key: quoteKey(key), Problem: "unknown key", Nearest: near}
		case len(m.parts) > 1:
			return nil, &Error{Line: m.line, Key: m.key(), Problem: "is no section"}
		default:
			settings = append(settings, Setting{Key: key, Line: m.line, Value: tree[key]})
		}
	}
	return settings, nil
}
