package codec

import (
	"bytes"
	"encoding/base64"
	"io"
	"os"
	"strings"

	"github.com/tempool/tempool/api"
)

// maxKeyFile bounds a file of keys, in bytes.
const maxKeyFile = 64 << 10

// ReadKeys reads a file with a key in base64 in each line; empty lines and those that begin with # are ignored. Only
// its owner may be able to read it. A file that cannot be used is CodeInvalid.
func ReadKeys(path string) ([][]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid,
			"cannot read the payload key file: %w; name a file that exists and that you may read", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "cannot read the payload key file: %w", err)
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		return nil, api.Errorf(api.CodeInvalid,
			"the payload key file %s is accessible to other users (mode %o); run chmod 600 %s", path, info.Mode().Perm(), path)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "cannot read the payload key file: %w", err)
	}
	if len(content) > maxKeyFile {
		return nil, api.Errorf(api.CodeInvalid, "%s is larger than %d bytes; it is not a payload key file", path, maxKeyFile)
	}
	var keys [][]byte
	number := 0
	for line := range bytes.Lines(content) {
		number++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != KeySize {
			return nil, api.Errorf(api.CodeInvalid,
				"line %d of %s is not %d bytes in base64; make a key with: openssl rand -base64 %d", number, path, KeySize, KeySize)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, api.Errorf(api.CodeInvalid, "%s has no key; make one with: openssl rand -base64 %d", path, KeySize)
	}
	return keys, nil
}
