package events

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tempool/tempool/api"
)

// Subject is a source as people name it: a worker POOL/N, a pool or a host.
func Subject(source string) string {
	parts := strings.Split(strings.TrimPrefix(source, "/"), "/")
	switch {
	case len(parts) == 4 && parts[0] == "pools" && parts[2] == "workers":
		return parts[1] + "/" + parts[3]
	case len(parts) == 2:
		return parts[1]
	}
	return source
}

// Summary is what an event says, in one line: a transition as FROM → TO, then other fields by name, and the reason
// last.
func Summary(event api.Event) string {
	var data map[string]any
	if json.Unmarshal(event.Data, &data) != nil {
		return string(event.Data)
	}
	var words []string
	if event.Omitted > 0 {
		words = append(words, fmt.Sprintf("(%d more before)", event.Omitted))
	}
	if event.Type == api.EventWorkerTransitioned {
		words = append(words, fmt.Sprint(data["from"], " → ", data["to"]))
		for _, shown := range []string{"from", "to", "event", "timestamp", "metadata"} {
			delete(data, shown)
		}
	}
	reason, _ := data["reason"].(string)
	delete(data, "reason")
	for _, key := range slices.Sorted(maps.Keys(data)) {
		switch value := data[key].(type) {
		case map[string]any, []any:
			continue
		case float64:
			words = append(words, fmt.Sprintf("%s=%.10g", key, value))
		default:
			words = append(words, fmt.Sprintf("%s=%v", key, value))
		}
	}
	if reason != "" {
		words = append(words, "– "+reason)
	}
	return strings.Join(words, " ")
}
