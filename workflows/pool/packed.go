package pool

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The server refuses an input of more than 2 MiB, and warns from 256 KiB on. The state of a large pool is compressed;
// that of others stays readable in the Web UI.

const (
	// packAbove is the size from which on the carried state is compressed, in bytes of JSON.
	packAbove = 128 << 10
	// packLevel is the level of compression: a workflow task may compute for a second at most.
	packLevel = 5
	// maxUnpacked bounds the decompressed state.
	maxUnpacked = 64 << 20
)

// pack compresses a state above a size. Like unpack it panics on an error, which fails the workflow task: another build
// continues the pool, which an error of the workflow would end.
func pack(run Run, above int) Run {
	encoded, err := json.Marshal(run)
	if err != nil {
		panic(fmt.Errorf("encode the state of pool %s: %w", run.Pool, err))
	}
	if len(encoded) <= above {
		return run
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, packLevel)
	if err == nil {
		_, err = w.Write(encoded)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		panic(fmt.Errorf("compress the state of pool %s: %w", run.Pool, err))
	}
	return Run{PoolStart: run.PoolStart, SpecVersion: run.SpecVersion, Size: run.Size, Packed: packed.Bytes()}
}

// unpack reverses pack.
func unpack(run Run) Run {
	if len(run.Packed) == 0 {
		return run
	}
	encoded, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(run.Packed)), maxUnpacked))
	if err != nil {
		panic(fmt.Errorf("decompress the state of pool %s: %w", run.PoolStart.Pool, err))
	}
	var full Run
	if err := json.Unmarshal(encoded, &full); err != nil {
		panic(fmt.Errorf("decode the state of pool %s: %w", run.PoolStart.Pool, err))
	}
	return full
}
