//go:build !linux

package tree

import (
	"errors"
	"os"
)

// OpenPID fails: only Linux has pidfds.
func OpenPID(Identity) (*os.File, error) { return nil, errors.New("this system has no pidfds") }

// Only Linux has marks.

func ownMark() Mark              { return 0 }
func (Mark) Set() error          { return nil }
func readMark(int) (Mark, error) { return 0, nil }
