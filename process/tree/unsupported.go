//go:build !linux && !darwin

package tree

import (
	"errors"
	"syscall"
)

// Nothing in this file is reached: process.Open fails on these systems.

var errUnsupported = errors.New("not supported on this system")

func SelfPath() (string, error)             { return "", errUnsupported }
func ReadEntry(int) (*Entry, error)         { return nil, errUnsupported }
func listPIDs() ([]int, error)              { return nil, errUnsupported }
func readCookie(int) (string, error)        { return "", errUnsupported }
func Signal(Identity, syscall.Signal) error { return errUnsupported }
func SignalGroup(int, syscall.Signal) error { return errUnsupported }
func SignalName(sig syscall.Signal) string  { return sig.String() }
func ReapOrphan(Identity)                   {}
func NumberSpace() string                   { return "" }
func WatchExit(int) (wait func())           { return func() {} }
func UsageOf(Identity) Usage                { return Usage{} }
func PSSOf(Identity) (int64, bool)          { return 0, false }
func atHighPriority(f func())               { f() }

const (
	SIGSTOP = syscall.SIGKILL
	SIGCONT = syscall.SIGKILL
)
