package spec

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

// row is a key's line in the tables of docs/configuration.md.
type row struct{ initial, meaning string }

// documentation reads the rows by key.
func documentation(t *testing.T) map[string]row {
	t.Helper()
	rows := map[string]row{}
	heading := regexp.MustCompile(`^##+ \[+([a-z.]+)\]+$`)
	line := regexp.MustCompile("^\\| `([a-z_]+)` \\| (.+?) \\| (.+) \\|$")
	section := ""
	for text := range strings.Lines(docs.Read(t, "docs/configuration.md")) {
		text = strings.TrimSuffix(text, "\n")
		if found := heading.FindStringSubmatch(text); found != nil {
			section = found[1]
		} else if strings.HasPrefix(text, "## ") {
			section = ""
		} else if found := line.FindStringSubmatch(text); found != nil {
			key := section + "." + found[1]
			require.NotContains(t, rows, key)
			rows[key] = row{initial: strings.Trim(found[2], "`"), meaning: found[3]}
		}
	}
	return rows
}

func TestDocumentationHasEveryKeyWithItsDefault(t *testing.T) {
	rows := documentation(t)
	for _, k := range keys {
		r, found := rows[k.key()]
		require.True(t, found, "docs/configuration.md has no row for %s", k.key())
		delete(rows, k.key())
		if r.initial == "required" {
			require.Contains(t, []string{"pool.name", "pool.command"}, k.key())
			continue
		}
		var tree map[string]any
		require.NoError(t, toml.Unmarshal([]byte(k.key()+" = "+r.initial), &tree), k.key())
		data, err := json.Marshal(tree)
		require.NoError(t, err)
		type bare Spec
		var documented bare
		require.NoError(t, json.Unmarshal(data, &documented), k.key())
		s := Spec(documented)
		require.True(t, hasDefault(&s, k.key()), "docs/configuration.md gives %s the default %s", k.key(),
			r.initial)
	}
	for name := range warmupKeys {
		require.Contains(t, rows, "start.warmup."+name)
		delete(rows, "start.warmup."+name)
	}
	require.Empty(t, rows, "docs/configuration.md describes keys that do not exist")
}

func TestDocumentationDescribesEveryAllowedValue(t *testing.T) {
	rows := documentation(t)
	word := regexp.MustCompile(`"[a-z0-9-]+"`)
	for _, k := range keys {
		if !regexp.MustCompile(`^("[a-z0-9-]+"(, | or )?)+$`).MatchString(k.allowed) {
			continue
		}
		for _, allowed := range word.FindAllString(k.allowed, -1) {
			described := rows[k.key()].meaning + rows[k.key()].initial
			require.Contains(t, described, allowed, "docs/configuration.md does not say what %s = %s does", k.key(), allowed)
		}
	}
}

// TestDocumentedRangesAreThoseOfTheRules compares ranges such as "1 to 1000", "up to 1000" and "at least 3" with the
// bounds that a rule has.
func TestDocumentedRangesAreThoseOfTheRules(t *testing.T) {
	rows := documentation(t)
	bounds := regexp.MustCompile(`^a (?:whole )?number from (\S+) to ([^\s;]+)`)
	documented := regexp.MustCompile(`(-?[\d,.]*\d)(?: \([^)]*\))? to (-?[\d,]*\d(?:\.\d+)?)|up to ([\d,]*\d)\b`)
	compared := 0
	for _, k := range keys {
		found := bounds.FindStringSubmatch(k.allowed)
		if found == nil {
			continue
		}
		for _, says := range documented.FindAllStringSubmatch(rows[k.key()].meaning, -1) {
			low, high := plainNumber(says[1]), plainNumber(says[2])
			if says[3] != "" {
				low, high = found[1], plainNumber(says[3])
			}
			require.Equal(t, []string{found[1], found[2]}, []string{low, high}, "docs/configuration.md says of %s: %s", k.key(),
				says[0])
			compared++
		}
	}
	require.Greater(t, compared, 10)
}

func plainNumber(text string) string { return strings.ReplaceAll(text, ",", "") }

func TestTheExamplesOfTheDocumentationParse(t *testing.T) {
	examples, protocols := regexp.MustCompile("(?s)```toml\n(.*?)```"), map[string]bool{}
	for _, example := range examples.FindAllStringSubmatch(docs.Read(t, "docs/configuration.md"), -1) {
		s, err := Parse([]byte(example[1]), "docs/configuration.md")
		require.NoError(t, err, example[1])
		protocols[s.Pool.Protocol] = true
	}
	require.Len(t, protocols, 3, "one example per protocol")
}

func TestTheErrorInTheDocumentationIsReal(t *testing.T) {
	_, err := Parse([]byte(minimal+"\n\n[recovery]\nbackof_max = '1m'"), "pool.toml")
	require.Error(t, err)
	require.Contains(t, docs.Read(t, "docs/configuration.md"), err.Error())
}
