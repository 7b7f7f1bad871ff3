package examplesetup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tempool/tempool/internal/installcache"
)

const (
	modulesName = "node_modules"
	// npmWaitDelay is how long a descendant of npm may keep npm's output open after npm has exited.
	npmWaitDelay = 5 * time.Second
)

// npmFiles are the files of an example that npm reads.
var npmFiles = []string{"package.json", "package-lock.json", ".npmrc"}

// ensurePackages returns the node_modules for the example's lock file and installs them into the cache folder first if
// they are missing.
func ensurePackages(ctx context.Context, cache, example string) (string, error) {
	files, key, err := readNPMFiles(example)
	if err != nil {
		return "", err
	}
	return installcache.Ensure(ctx, cache, key, modulesName, func(ctx context.Context, scratch string) error {
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(scratch, name), data, 0o644); err != nil {
				return fmt.Errorf("prepare the packages of %s: %w", example, err)
			}
		}
		if err := npmCI(ctx, scratch); err != nil {
			return fmt.Errorf("install the packages of %s: %w", example, err)
		}
		return nil
	})
}

// npmCI installs exactly the packages in dir's lock file, without running their scripts.
func npmCI(ctx context.Context, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is not on the PATH; install Node.js 20 or newer (https://nodejs.org): %w", err)
	}
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir, cmd.WaitDelay = dir, npmWaitDelay
	output, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("npm ci: %w; its output:\n%s", err, bytes.TrimSpace(output))
}

// readNPMFiles returns the files that npm needs and a key that is different for different content.
func readNPMFiles(example string) (files map[string][]byte, key string, err error) {
	files = make(map[string][]byte)
	sum := sha256.New()
	for _, name := range npmFiles {
		data, err := os.ReadFile(filepath.Join(example, name))
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(name, ".") {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("read the example's npm files: %w", err)
		}
		files[name] = data
		fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
	}
	return files, hex.EncodeToString(sum.Sum(nil)), nil
}
