package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// maxFile bounds a pool.toml. The spec is part of the state of the pool's workflow, which the Temporal server bounds.
const maxFile = 64 << 10

// Load reads a pool.toml. It makes pool.dir and pool.env_file absolute: relative to the file's folder. That is also the
// default of pool.dir, so a command such as ["python3", "worker.py"] works wherever tempool runs. An error about the
// content is a *Error.
func Load(path string) (Spec, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return Spec{}, fmt.Errorf("make the path %s absolute: %w", path, err)
	}
	data, err := readFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("read the spec: %w; name a pool.toml that exists and that you may read", err)
	}
	s, err := Parse(data, path)
	if err != nil {
		return Spec{}, err
	}
	if s.Pool.Kind == KindProcess && !filepath.IsAbs(s.Pool.Dir) {
		s.Pool.Dir = filepath.Join(filepath.Dir(absolute), s.Pool.Dir)
	}
	if s.Pool.EnvFile != "" && !filepath.IsAbs(s.Pool.EnvFile) {
		s.Pool.EnvFile = filepath.Join(filepath.Dir(absolute), s.Pool.EnvFile)
	}
	return s, nil
}

// readFile reads a file, and no more of it than decode refuses.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile+1))
}

// Parse parses and validates the text of a pool.toml. Errors name file. Every error is a *Error.
func Parse(data []byte, file string) (Spec, error) {
	s, e := parse(data)
	if e != nil {
		e.File = file
		return Spec{}, e
	}
	return s, nil
}

func parse(data []byte) (Spec, *Error) {
	mentions, tree, e := decode(data)
	if e != nil {
		return Spec{}, e
	}
	s := Default()
	if e := readMentions(mentions, tree, &s); e != nil {
		return Spec{}, e
	}
	if e, with := check(&s); e != nil {
		e.Line = lineFor(mentions, e.Key, with)
		return Spec{}, e
	}
	return s, nil
}

// decode decodes a file, and finds where it mentions what.
func decode(data []byte) (mentions []mention, tree map[string]any, e *Error) {
	if len(data) > maxFile {
		return nil, nil, &Error{Problem: fmt.Sprintf("the file is larger than %s", Bytes(maxFile)), Allowed: "up to " +
			Bytes(maxFile).String()}
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // the byte order mark that some editors write
	mentions, badLine, err := locate(data)
	if err != nil {
		return nil, nil, &Error{Line: badLine, Problem: "invalid TOML: " + err.Error()}
	}
	if err := toml.Unmarshal(data, &tree); err != nil {
		return nil, nil, decodeError(err, mentions)
	}
	return mentions, tree, nil
}

// decodeError converts an error about well-formed TOML: duplicate keys and tables, numbers and dates out of range.
func decodeError(err error, mentions []mention) *Error {
	var decode *toml.DecodeError
	if !errors.As(err, &decode) {
		return &Error{Line: 1, Problem: "invalid TOML: " + err.Error()}
	}
	line, _ := decode.Position()
	e := &Error{Line: line, Problem: strings.TrimPrefix(decode.Error(), "toml: ")}
	first := map[string]int{}
	for _, m := range mentions {
		key := m.key()
		if m.line == line {
			e.Key = key
			if before, twice := first[key]; twice {
				e.Problem = fmt.Sprintf("duplicate of line %d; keep one", before)
				return e
			}
		}
		if _, known := first[key]; !known {
			first[key] = m.line
		}
	}
	return e
}

// readMentions sets what the file mentions, in its order. It stops at the first that is unknown or has a wrong form.
func readMentions(mentions []mention, tree map[string]any, s *Spec) *Error {
	read := map[string]bool{}
	for _, m := range mentions {
		e := readMention(m.parts, tree, s, read)
		if e == nil {
			continue
		}
		e.Line = max(m.line, lineFor(mentions, e.Key, ""))
		return e
	}
	return nil
}

// readMention reads one mention. It reads the value of a key once, however often the key is mentioned.
func readMention(parts []string, tree map[string]any, s *Spec, read map[string]bool) *Error {
	name := parts[0]
	if !slices.Contains(sections, name) {
		return unknownSection(name, len(parts) == 1)
	}
	section, ok := tree[name].(map[string]any)
	if !ok {
		return &Error{Key: name, Problem: "is a section and must be one table", Allowed: "[" + name + "]"}
	}
	if len(parts) == 1 {
		return nil
	}
	k, found := keyByName[name+"."+parts[1]]
	if !found {
		return unknownKey(name, parts[1])
	}
	if !read[k.key()] {
		read[k.key()] = true
		if e := k.set(s, section[k.name]); e != nil {
			return e
		}
	}
	if k.key() == "start.warmup" && len(parts) == maxKeyParts {
		return unknownInWarmup(parts)
	}
	return nil
}

func unknownSection(name string, isValue bool) *Error {
	e := &Error{Key: quoteKey(name), Problem: "unknown section", Allowed: "[" + strings.Join(sections, "], [") + "]",
		Nearest: nearestSection(name)}
	if isValue && len(keysNamed(name)) > 0 {
		e.Problem, e.Allowed = "is outside its section", ""
	}
	return e
}

func unknownKey(section, name string) *Error {
	nearest, inOther := nearestKey(section, name)
	problem := "unknown key in [" + section + "]"
	if inOther {
		problem += "; it exists in another section"
	}
	return &Error{Key: joinKey([]string{section, name}), Problem: problem, Allowed: strings.Join(namesIn(section), ", "),
		Nearest: nearest}
}

func unknownInWarmup(parts []string) *Error {
	name := parts[maxKeyParts-1]
	if _, found := warmupKeys[name]; found {
		return nil
	}
	names := sortedNames(warmupKeys)
	return &Error{Key: joinKey(parts), Problem: "unknown key in [[start.warmup]]", Allowed: strings.Join(names, ", "),
		Nearest: "start.warmup." + closest(name, names)}
}

func namesIn(section string) []string {
	var names []string
	for _, k := range keys {
		if k.section == section {
			names = append(names, k.name)
		}
	}
	return names
}

// lineFor returns the line of the first mention of the key, else of the key it conflicts with, else of its section,
// else 1.
func lineFor(mentions []mention, key, with string) int {
	lines := make(map[string]int, len(mentions))
	for _, m := range mentions {
		for n := range m.parts {
			path := joinKey(m.parts[:n+1])
			if _, found := lines[path]; !found {
				lines[path] = m.line
			}
		}
	}
	for _, path := range []string{key, with} {
		for strings.Contains(path, ".") {
			if line, found := lines[path]; found {
				return line
			}
			path = path[:strings.LastIndexAny(path, ".[")]
		}
	}
	section, _, _ := strings.Cut(key, ".")
	return max(lines[section], 1)
}
