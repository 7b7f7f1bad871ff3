//go:build !linux && !darwin

package process

import (
	"os"
	"runtime"
)

var errUnsupported = coded(CodeInvalid, nil, "Tempool's agent does not run on %s; run it on Linux or macOS, or in a Linux container or WSL", runtime.GOOS)

func supported() error       { return errUnsupported }
func tryLock(*os.File) error { return errUnsupported }
