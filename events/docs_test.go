package events

import (
	"maps"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/lint/docs"
)

// manual returns the rows of the table of types: the column data by type.
func manual(t *testing.T) map[string]string {
	t.Helper()
	page := docs.Read(t, "docs/events.md")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+\\.[a-z_]+)` \\| (?:worker|pool|host)[^|]* "+
		"\\| (.+) \\|$").FindAllStringSubmatch(
		page, -1) {
		require.NotContains(t, rows, row[1])
		rows[row[1]] = row[2]
	}
	return rows
}

func TestTheManualListsExactlyTheTypes(t *testing.T) {
	var listed []string
	for name := range manual(t) {
		listed = append(listed, name)
	}
	require.ElementsMatch(t, api.EventTypes(), listed)
}

// TestTheManualListsTheDataOfEachType compares the fields of the types that share a struct: the manual describes some
// of them as "the same".
func TestTheManualListsTheDataOfEachType(t *testing.T) {
	rows := manual(t)
	word := regexp.MustCompile("`([a-z_]+)`")
	for prefix, data := range map[string]any{
		api.EventWorkerTransitioned: api.TransitionEvent{}, "process.": api.ProcessEventData{}, "lease.": api.LeaseEvent{},
		"rotation.":           api.RotationEvent{},
		api.EventWorkerProbed: api.ProbeEvent{}, api.EventWorkerSampled: api.SampleEvent{}, "limit.": api.LimitEvent{},
		"resources.": api.RebalanceEvent{},
		"call.":      api.CallEvent{}, "pool.": api.PoolEvent{}, "alert.": api.AlertEvent{}, "host.": api.HostEvent{},
		"session.": api.SessionEvent{}, "events.": api.MissedEvent{},
	} {
		listed, values := map[string]bool{}, strings.Fields("checkout renew checkin ok error close ended worker_gave_up "+
			"starts_held rollout_halted")
		for name, row := range rows {
			if strings.HasPrefix(name, prefix) {
				for _, found := range word.FindAllStringSubmatch(row, -1) {
					listed[found[1]] = true
				}
			}
		}
		for _, value := range values {
			delete(listed, value)
		}
		want, within := fields(reflect.TypeOf(data))
		for name := range within { // of an object in the data, which a page need not describe
			if !want[name] {
				delete(listed, name)
			}
		}
		require.Equal(t, want, listed, prefix)
	}
}

// fields returns the names of the JSON fields of a struct, with those of embedded ones, and the names of the fields
// within them.
func fields(of reflect.Type) (names, within map[string]bool) {
	names, within = map[string]bool{}, map[string]bool{}
	for _, field := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names[name] = true
			if inner := field.Type; inner.Kind() == reflect.Pointer && inner.Elem().Kind() == reflect.Struct {
				deeper, _ := fields(inner.Elem())
				maps.Copy(within, deeper)
			}
		}
	}
	return names, within
}
