package access

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/api"
)

// maxFileBytes bounds a tokens file.
const maxFileBytes = 4 << 20

// File is the content of a tokens file: [[token]] tables in TOML.
type File struct {
	Tokens []Token `toml:"token"`
}

// ReadFile reads and validates a tokens file. A file that others than its owner may write is CodeInvalid, because they
// could grant themselves every right; so are two tokens of one name or one hash.
func ReadFile(path string) (File, error) {
	var file File
	info, err := os.Stat(path)
	if err != nil {
		return file, api.Errorf(api.CodeInvalid, "cannot read the tokens file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return file, api.Errorf(api.CodeInvalid,
			"the tokens file %s has mode %#o, so other users may write to it; run chmod 600 %s", path, mode, path)
	}
	if info.Size() > maxFileBytes {
		return file, api.Errorf(api.CodeInvalid, "the tokens file %s has %d bytes; at most %d are allowed", path, info.Size(),
			maxFileBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return file, api.Errorf(api.CodeInvalid, "cannot read the tokens file: %w", err)
	}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&file); err != nil {
		return File{}, api.Errorf(api.CodeInvalid, "the tokens file %s is not valid: %w", path, err)
	}
	names, hashes := map[string]bool{}, map[string]bool{}
	for _, token := range file.Tokens {
		if err := token.check(); err != nil {
			return File{}, api.Errorf(api.CodeInvalid, "the tokens file %s is not valid: %w", path, err)
		}
		if names[token.Name] || hashes[token.SHA256] {
			return File{}, api.Errorf(api.CodeInvalid, "the tokens file %s names token %s, or its hash, twice", path, token.Name)
		}
		names[token.Name], hashes[token.SHA256] = true, true
	}
	return file, nil
}

// Add adds a token to a file and creates a missing one with mode 0600. A second token of the same name is CodeInvalid.
func Add(path string, token Token) error {
	if err := token.check(); err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	return edit(path, func(file *File) error {
		if slices.ContainsFunc(file.Tokens, func(t Token) bool { return t.Name == token.Name }) {
			return api.Errorf(api.CodeInvalid, "%s has a token %s already; remove it first, or choose another name", path,
				token.Name)
		}
		file.Tokens = append(file.Tokens, token)
		return nil
	})
}

// Remove removes a token from a file; a missing one is CodeInvalid.
func Remove(path, name string) error {
	return edit(path, func(file *File) error {
		before := len(file.Tokens)
		file.Tokens = slices.DeleteFunc(file.Tokens, func(t Token) bool { return t.Name == name })
		if len(file.Tokens) == before {
			return api.Errorf(api.CodeInvalid, "%s has no token %s", path, name)
		}
		return nil
	})
}

// edit changes a file atomically; edits of several programs follow one another.
func edit(path string, change func(*File) error) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return api.Errorf(api.CodeInvalid, "cannot write the tokens file %s: %w", path, err)
	}
	defer folder.Close()
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil { // released when the folder is closed
		return fmt.Errorf("lock %s: %w", folder.Name(), err)
	}
	file, err := ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := change(&file); err != nil {
		return err
	}
	text, err := toml.Marshal(file)
	if err != nil {
		return fmt.Errorf("encode the tokens file: %w", err)
	}
	return replace(path, append([]byte("# Written by tempool token. The secrets are not in this file, only their "+
		"hashes.\n"),
		text...))
}

// replace writes a file atomically, with the mode and the owner of the one that it replaces.
func replace(path string, content []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".tokens-*") // with mode 0600
	if err != nil {
		return api.Errorf(api.CodeInvalid, "cannot write the tokens file %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	var old unix.Stat_t
	if unix.Stat(path, &old) == nil {
		err = errors.Join(temporary.Chown(int(old.Uid), int(old.Gid)), temporary.Chmod(fs.FileMode(old.Mode).Perm()))
	}
	_, failed := temporary.Write(content)
	if err = errors.Join(err, failed, temporary.Sync(), temporary.Close()); err != nil {
		return fmt.Errorf("write the tokens file %s: %w", path, err)
	}
	return os.Rename(temporary.Name(), path)
}
