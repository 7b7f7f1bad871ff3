package dev

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tempool/tempool/examples"
	"github.com/tempool/tempool/sdk"
	"github.com/tempool/tempool/spec"
)

// exampleName is the pool on which the job can run.
const exampleName = "codemetrics"

// loadSpec reads the pool's file; that of the example is embedded in this program.
func (s *starter) loadSpec() (spec.Spec, error) {
	file := s.options.PoolFile
	if file == "" {
		var err error
		if file, err = unpackExample(filepath.Join(s.data.path, "files")); err != nil {
			return spec.Spec{}, fmt.Errorf("unpack the example: %w", err)
		}
	}
	return spec.Load(file)
}

// unpackExample writes the example and the Python SDK below root, with the layout of the repository, and returns the
// path of its pool.toml. The folder's name is a hash of the content, so another version has another path, and a running
// pool is rolled out to it.
func unpackExample(root string) (string, error) {
	hash := sha256.New()
	archive := tar.NewWriter(hash)
	if err := errors.Join(archive.AddFS(examples.Codemetrics), archive.AddFS(sdk.Python), archive.Close()); err != nil {
		return "", err
	}
	into := filepath.Join(root, hex.EncodeToString(hash.Sum(nil)[:6]))
	if err := os.RemoveAll(into); err != nil { // what an earlier run has left, which CopyFS would not replace
		return "", err
	}
	return filepath.Join(into, "examples", exampleName, "pool.toml"), errors.Join(
		os.CopyFS(filepath.Join(into, "examples"), examples.Codemetrics), os.CopyFS(filepath.Join(into, "sdk"), sdk.Python))
}
