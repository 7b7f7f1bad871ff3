package spec

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// ParseEnv reads variables as pool.env_file has them: NAME=VALUE on each line, where export may precede a name. A value
// in double quotes is a string of Go, with \n for a line break, and one in single quotes is taken as it is. Empty lines
// and those that begin with # are skipped. Errors name the line, and no value.
func ParseEnv(text string) (map[string]string, error) {
	variables := map[string]string{}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		problem, last := variableProblem(name), len(value)-1
		var err error
		switch {
		case !found:
			problem = "has no NAME=VALUE"
		case strings.HasPrefix(value, `"`):
			value, err = strconv.Unquote(value)
		case strings.HasPrefix(value, "'") && (last == 0 || value[last] != '\''):
			err = strconv.ErrSyntax
		case strings.HasPrefix(value, "'"):
			value = value[1:last]
		}
		if err != nil || strings.ContainsRune(value, 0) {
			problem = cmp.Or(problem, "has a value that is no string in quotes, or contains a NUL character")
		}
		if problem != "" {
			return nil, fmt.Errorf("line %d %s", number, problem)
		}
		variables[name] = value
	}
	return variables, nil
}
