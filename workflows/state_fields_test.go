package workflows

import (
	"flag"
	"fmt"
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

// recordState is the folder of a release in test/replay/testdata to which TestNewFieldsOfTheStateRaiseItsFormat writes the fields of the state.
var recordState = flag.String("record-state", "", "folder for the fields of the state of runs")

// stateFieldsFile is the file with the format and the fields of a release.
const stateFieldsFile = "state-fields.txt"

func TestNewFieldsOfTheStateRaiseItsFormat(t *testing.T) {
	var current []string
	for name, definition := range definitions {
		current = append(current, jsonFields(reflect.TypeOf(definition).In(1), name, nil)...)
	}
	slices.Sort(current)
	require.Greater(t, len(current), 100)
	if *recordState != "" {
		content := fmt.Sprintf("format %d\n%s\n", StateFormat, strings.Join(current, "\n"))
		require.NoError(t, os.WriteFile(filepath.Join(*recordState, stateFieldsFile), []byte(content), 0o644))
	}
	files, err := filepath.Glob(filepath.Join("..", "test", "replay", "testdata", "*", stateFieldsFile))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, unmarkedFields(string(content), StateFormat, current),
			"these fields are not in %s: raise StateFormat (before that release: make replay-state-fields)", file)
	}
}

func TestAFieldThatANewFormatDoesNotAnnounceIsFound(t *testing.T) {
	recorded := "format 3\nPool.size\n"
	require.Empty(t, unmarkedFields(recorded, 3, []string{"Pool.size"}))
	require.Equal(t, []string{"Pool.colour"}, unmarkedFields(recorded, 3, []string{"Pool.colour", "Pool.size"}))
	require.Empty(t, unmarkedFields(recorded, 4, []string{"Pool.colour", "Pool.size"}))
}

// unmarkedFields returns the fields that a release with the given content of its stateFieldsFile does not know, unless the format is higher now.
func unmarkedFields(recorded string, format int, current []string) (unmarked []string) {
	lines := strings.Split(strings.TrimSpace(recorded), "\n")
	var released int
	if _, err := fmt.Sscanf(lines[0], "format %d", &released); err != nil {
		return []string{"the file begins with " + lines[0]}
	}
	for _, field := range current {
		if format <= released && !slices.Contains(lines, field) {
			unmarked = append(unmarked, field)
		}
	}
	return unmarked
}

// jsonFields returns the paths of the JSON fields of a type, as NAME.field.field; elements of lists and maps have the path of the list.
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
