package pool

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
)

// The server refuses an input of more than 2 MiB, and warns from 256 KiB on. The state of a large pool is compressed; that of others stays
// readable in the Web UI.

const (
	// packAbove is the size from which on the carried state is compressed, in bytes of JSON.
	packAbove = 128 << 10
	// packLevel is the level of compression: a workflow task may compute for a second at most.
	packLevel = 5
	// maxUnpacked bounds the decompressed state.
	maxUnpacked = 64 << 20
)

// pack compresses a state above a size.
func pack(run Run, above int) (Run, error) {
	encoded, err := json.Marshal(run)
	if err != nil || len(encoded) <= above {
		return run, err
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, packLevel)
	if err != nil {
		return run, err
	}
	if _, err := w.Write(encoded); err != nil {
		return run, err
	}
	if err := w.Close(); err != nil {
		return run, err
	}
	return Run{PoolStart: run.PoolStart, SpecVersion: run.SpecVersion, Size: run.Size, Packed: packed.Bytes()}, nil
}

// unpack reverses pack.
func unpack(run Run) (Run, error) {
	if len(run.Packed) == 0 {
		return run, nil
	}
	encoded, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(run.Packed)), maxUnpacked))
	if err != nil {
		return run, fmt.Errorf("decompress the state of pool %s: %w", run.Pool, err)
	}
	var full Run
	if err := json.Unmarshal(encoded, &full); err != nil {
		return run, fmt.Errorf("decode the state of pool %s: %w", run.Pool, err)
	}
	return full, nil
}
