// Package atomicfile replaces files: a reader, and a crash of the program, find either the old content or the new.
package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Write replaces the file at path, whose folder must exist. A crash of the machine may leave it empty; see
// WriteDurably.
func Write(path string, content []byte, mode os.FileMode) error {
	return write(path, whole(content), mode, func(*os.File) error { return nil })
}

// WriteDurably is Write whose content also survives a crash of the machine once it has returned.
func WriteDurably(path string, content []byte, mode os.FileMode) error {
	return StreamDurably(path, mode, whole(content))
}

// StreamDurably is WriteDurably for content that stream writes. If stream fails, the old file stays.
func StreamDurably(path string, mode os.FileMode, stream func(io.Writer) error) error {
	if err := write(path, stream, mode, (*os.File).Sync); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

func whole(content []byte) func(io.Writer) error {
	return func(out io.Writer) error {
		_, err := out.Write(content)
		return err
	}
}

// SyncFolder makes created, renamed and removed names in a folder survive a crash of the machine.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func write(path string, stream func(io.Writer) error, mode os.FileMode, sync func(*os.File) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	if err = stream(file); err == nil {
		err = sync(file)
	}
	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // err is the failure to report
	}
	return err
}
