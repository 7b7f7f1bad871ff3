package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// storageEngines are candidates for the embedded session store, which uses the first one.
var storageEngines = []string{"bbolt", "pebble", "badger"}

// measureEngines runs each engine in a separate process, alternating, with the records of 10,000 small sessions.
func measureEngines(ctx context.Context, b *bench) error {
	source, program := filepath.Join(b.root, "test", "bench", "engines"), filepath.Join(b.dir, "engines")
	if _, err := output(ctx, source, "go", "build", "-o", program, "."); err != nil {
		return err
	}
	type figure struct{ key, name, unit string }
	figures := []figure{
		{"get_us", "read, p50", "µs"}, {"durable_put_ms", "one record, durable", "ms"}, {"durable_batch_of_100_ms", "100 records in one batch, durable", "ms"},
		{"updates_per_second_in_batches_of_1000", "updates, 1,000 in a batch", "/s"}, {"open_ms", "opening", "ms"},
	}
	rows := map[string]*series{}
	for _, f := range figures {
		for _, engine := range storageEngines {
			rows[f.key+engine] = b.result.row(f.name+": "+engine, f.unit)
		}
	}
	for round := range b.rounds {
		for i := range storageEngines {
			engine := storageEngines[(i+round)%len(storageEngines)] // each engine is first in turn
			folder := filepath.Join(b.dir, fmt.Sprint("engine-", engine, "-", round))
			printed, err := output(ctx, b.dir, program, engine, folder)
			if err != nil {
				return err
			}
			var measured map[string]any
			if err := json.NewDecoder(strings.NewReader(printed)).Decode(&measured); err != nil {
				return fmt.Errorf("read the result of %s: %w", engine, err)
			}
			for _, f := range figures {
				value, is := measured[f.key].(float64)
				if !is {
					return fmt.Errorf("the result of %s lacks %s", engine, f.key)
				}
				rows[f.key+engine].add(value)
			}
			_ = os.RemoveAll(folder) // temporary
		}
	}
	b.result.note("10,000 records of 300 bytes; a batch counts when it is on disk; docs/dependencies.md explains the choice of %s", storageEngines[0])
	return nil
}
