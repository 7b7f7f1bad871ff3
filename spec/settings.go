package spec

import (
	"fmt"
	"slices"
	"strings"
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
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w; name a file that exists and that you may read", err)
	}
	settings, e := parseSettings(data, known)
	if e != nil {
		e.File = path
		return nil, e
	}
	return settings, nil
}

func parseSettings(data []byte, known []string) ([]Setting, *Error) {
	mentions, tree, e := decode(data)
	if e != nil {
		return nil, e
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
