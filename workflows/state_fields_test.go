package workflows

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
)

// recordState is the folder in test/replay/testdata to which TestChangedFieldsOfTheStateRaiseItsFormat writes the
// fields of the state. It replaces those of a lower format only.
var recordState = flag.String("record-state", "", "folder for the fields of the state of runs")

// stateFieldsFile is the file with the format and the fields of a release.
const stateFieldsFile = "state-fields.txt"

func TestChangedFieldsOfTheStateRaiseItsFormat(t *testing.T) {
	var current []string
	formats := map[string]int{}
	for name, definition := range definitions {
		if run := reflect.TypeOf(definition); run.NumIn() > 1 { // else it has no state
			current = append(current, jsonFields(run.In(1), name, nil)...)
		}
		formats[name] = formatOf(StateFormats, name)
	}
	slices.Sort(current)
	require.Greater(t, len(current), 100)
	if *recordState != "" {
		file := filepath.Join(*recordState, stateFieldsFile)
		if before, err := os.ReadFile(file); err == nil {
			require.Empty(t, unmarkedFields(string(before), formats, current),
				"agents know these formats with other fields: raise StateFormats first")
		}
		var content strings.Builder
		for _, name := range slices.Sorted(maps.Keys(formats)) {
			fmt.Fprintf(&content, "format %s %d\n", name, formats[name])
		}
		content.WriteString(strings.Join(current, "\n") + "\n")
		require.NoError(t, os.WriteFile(file, []byte(content.String()), 0o644))
	}
	files, err := filepath.Glob(filepath.Join("..", "test", "replay", "testdata", "*", stateFieldsFile))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, unmarkedFields(string(content), formats, current),
			"these fields are in only one of the code and %s: raise the format in StateFormats, and record the new fields "+
				"with make replay-state-fields", file)
	}
}

func TestAFieldThatANewFormatDoesNotAnnounceIsFound(t *testing.T) {
	recorded := "format Pool 3\nformat Host 1\nHost.epoch\nPool.size\n"
	at := func(pool int) map[string]int { return map[string]int{"Pool": pool, "Host": 1} }
	require.Empty(t, unmarkedFields(recorded, at(3), []string{"Host.epoch", "Pool.size"}))
	require.Equal(t, []string{"Pool.colour"},
		unmarkedFields(recorded, at(3), []string{"Host.epoch", "Pool.colour", "Pool.size"}))
	require.Equal(t, []string{"Pool.size"}, unmarkedFields(recorded, at(3), []string{"Host.epoch"}),
		"an agent that knows it would find nothing in its place")
	require.Empty(t, unmarkedFields(recorded, at(4), []string{"Host.epoch", "Pool.colour"}))
	require.Equal(t, []string{"Host.name"}, unmarkedFields(recorded, at(4), []string{"Host.epoch", "Host.name"}),
		"of another workflow")
}

// unmarkedFields returns the fields in which the current ones differ from those in the content of a stateFieldsFile,
// but for those of workflows whose format is higher now.
func unmarkedFields(recorded string, formats map[string]int, current []string) (unmarked []string) {
	earlier := map[string]int{}
	var known []string
	for line := range strings.Lines(strings.TrimSpace(recorded)) {
		line = strings.TrimSpace(line)
		var name string
		var format int
		if _, err := fmt.Sscanf(line, "format %s %d", &name, &format); err == nil {
			earlier[name] = format
		} else {
			known = append(known, line)
		}
	}
	compare := func(fields, others []string) {
		for _, field := range fields {
			name, _, _ := strings.Cut(field, ".")
			if formats[name] <= earlier[name] && !slices.Contains(others, field) {
				unmarked = append(unmarked, field)
			}
		}
	}
	compare(current, known)
	compare(known, current)
	return unmarked
}

// jsonFields returns the paths of the JSON fields of a type, as NAME.field.field; elements of lists and maps have the
// path of the list.
func jsonFields(of reflect.Type, path string, within []reflect.Type) (fields []string) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return jsonFields(of.Elem(), path, within)
	case reflect.Struct:
	default:
		return nil
	}
	if slices.Contains(within, of) || of == reflect.TypeFor[time.Time]() || of == reflect.TypeFor[converter.RawValue]() {
		return nil
	}
	within = append(slices.Clone(within), of)
	for i := range of.NumField() {
		field := of.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case tag == "-" || !field.IsExported() && !field.Anonymous:
		case field.Anonymous && tag == "":
			fields = append(fields, jsonFields(field.Type, path, within)...)
		default:
			if tag == "" {
				tag = field.Name
			}
			fields = append(fields, path+"."+tag)
			fields = append(fields, jsonFields(field.Type, path+"."+tag, within)...)
		}
	}
	return fields
}
