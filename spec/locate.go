package spec

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// maxKeyParts is how many parts of a key are told apart: start.warmup[0].params has 4. What stands below belongs to that key's value.
const maxKeyParts = 4

// mention is one place in the file where a key or a section is written. An element of a list has a part of its own, like "[0]".
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

// quoteKey is a part of a key as TOML wants it written.
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

// locator finds the mentions of a file, in order.
type locator struct {
	parser     unstable.Parser
	lineStarts []int
	mentions   []mention
	rows       map[string]int // tables seen so far of each [[array]]
}

// locate returns where everything in the file is written, or what keeps it from being TOML and the line of that.
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

// header returns the path of the table that begins, with the number of its row in every array on the way.
func (l *locator) header(node *unstable.Node) []string {
	var path []string
	line := 0
	for it := node.Key(); it.Next(); {
		key := it.Node()
		line = l.lineOf(key)
		path = append(path, string(key.Data))
		if len(path) >= maxKeyParts { // no array that matters begins here, and there may be any number of parts
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

// rowKey tells paths apart whose parts hold any character.
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

// trimBOM drops the byte order mark some editors write first, which TOML does not know.
func trimBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }
