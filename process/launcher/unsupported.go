//go:build !linux && !darwin

package launcher

import (
	"errors"
	"os"
	"syscall"
)

// Nothing in this file is reached: process.Open fails on these systems.

var errUnsupported = errors.New("not supported on this system")

func (*Credentials) SessionAttr() *syscall.SysProcAttr { return nil }
func (*Credentials) become() error                     { return errUnsupported }
func SocketPair() (ours, theirs *os.File, err error)   { return nil, nil, errUnsupported }
func dropPrivileges() error                            { return errUnsupported }
func closeOnExec(int)                                  {}
func execute(string, []string, []string) error         { return errUnsupported }
