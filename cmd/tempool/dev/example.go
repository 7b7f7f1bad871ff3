package dev

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tempool/tempool/examples"
	"github.com/tempool/tempool/internal/atomicfile"
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
	files := map[string][]byte{}
	for folder, source := range map[string]fs.FS{"examples": examples.Codemetrics, "sdk": sdk.Python} {
		err := fs.WalkDir(source, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := fs.ReadFile(source, path)
			files[filepath.Join(folder, filepath.FromSlash(path))] = content
			return err
		})
		if err != nil {
			return "", err
		}
	}
	into := filepath.Join(root, fingerprint(files))
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(into, name)), 0o755); err != nil {
			return "", err
		}
		if err := atomicfile.Write(filepath.Join(into, name), content, 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(into, "examples", exampleName, "pool.toml"), nil
}

// fingerprint returns a short hash of the files and their names.
func fingerprint(files map[string][]byte) string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(files[name]), files[name])
	}
	return hex.EncodeToString(hash.Sum(nil)[:6])
}
