package spec

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// maxKeyParts is the number of parts of a key that are distinguished: start.warmup[0].params has 4. Further parts
// belong to the value.
const maxKeyParts = 4

// mention is one occurrence of a key or section in the file. The index of a list element is a part of its own, such as
// "[0]".
type mention struct {
	parts []string
	line  int
}

func (m mention) key() string { return joinKey(m.parts) }

func joinKey(parts []string) string {
	var path strings.Builder
	for i, part := range parts {
		switch {
		case strings.HasPrefix(part, "[") && strings.HasSuffix(part, "]"):
			path.WriteString(part)
			continue
		case i > 0:
			path.WriteByte('.')
		}
		path.WriteString(quoteKey(part))
	}
	return path.String()
}

// quoteKey quotes a part of a key where TOML requires it.
func quoteKey(part string) string {
	bare := func(r rune) bool {
		return r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if part != "" && strings.TrimFunc(part, bare) == "" {
		return part
	}
	return strconv.Quote(part)
}

func sortedNames[V any](table map[string]V) []string { return slices.Sorted(maps.Keys(table)) }

// locator collects the mentions of a file in order.
type locator struct {
	parser     unstable.Parser
	lineStarts []int
	mentions   []mention
	rows       map[string]int // tables seen so far of each [[array]]
}

// locate returns the mentions in a file, or a syntax error and its line.
func locate(data []byte) (mentions []mention, badLine int, problem error) {
	l := &locator{rows: map[string]int{}, lineStarts: []int{0}}
	for i, b := range data {
		if b == '\n' {
			l.lineStarts = append(l.lineStarts, i+1)
		}
	}
	l.parser.Reset(data)
	var table []string
	for l.parser.NextExpression() {
		node := l.parser.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = l.header(node)
		case unstable.KeyValue:
			l.keyValue(table, node)
		}
	}
	if err := l.parser.Error(); err != nil {
		highlight := err.(*unstable.ParserError).Highlight
		return nil, l.lineAt(int(l.parser.Range(highlight).Offset)), err
	}
	return l.mentions, 0, nil
}

// header returns the path of a table header, with an index after every array of tables.
func (l *locator) header(node *unstable.Node) []string {
	var path []string
	line := 0
	for it := node.Key(); it.Next(); {
		key := it.Node()
		line = l.lineOf(key)
		path = append(path, string(key.Data))
		if len(path) >= maxKeyParts { // deeper arrays do not matter
			continue
		}
		if it.IsLast() && node.Kind == unstable.ArrayTable {
			l.rows[rowKey(path)]++
		}
		if rows := l.rows[rowKey(path)]; rows > 0 {
			path = append(path, fmt.Sprintf("[%d]", rows-1))
		}
	}
	l.mention(path, line)
	return path
}

// rowKey makes a map key of a path whose parts may contain any character.
func rowKey(path []string) string { return strings.Join(path, "\x00") }

func (l *locator) keyValue(table []string, node *unstable.Node) {
	path := slices.Clone(table)
	line := 0
	for it := node.Key(); it.Next(); {
		line = l.lineOf(it.Node())
		path = append(path, string(it.Node().Data))
	}
	l.value(path, node.Value(), line)
}

func (l *locator) value(path []string, node *unstable.Node, line int) {
	l.mention(path, line)
	if len(path) >= maxKeyParts {
		return
	}
	switch node.Kind {
	case unstable.InlineTable:
		for it := node.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				l.keyValue(path, it.Node())
			}
		}
	case unstable.Array:
		element := 0
		for it := node.Children(); it.Next(); {
			child := it.Node()
			if child.Kind == unstable.Comment {
				continue
			}
			if child.Kind == unstable.InlineTable {
				l.value(append(slices.Clone(path), fmt.Sprintf("[%d]", element)), child, line)
			}
			element++
		}
	}
}

func (l *locator) mention(path []string, line int) {
	l.mentions = append(l.mentions, mention{parts: slices.Clone(path[:min(len(path), maxKeyParts)]), line: line})
}

func (l *locator) lineOf(node *unstable.Node) int { return l.lineAt(int(node.Raw.Offset)) }

func (l *locator) lineAt(offset int) int {
	return sort.Search(len(l.lineStarts), func(i int) bool { return l.lineStarts[i] > offset })
}
