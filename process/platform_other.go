//go:build !linux && !darwin

package process

import (
	"os"
	"runtime"
	"syscall"
)

var errUnsupported = coded(CodeInvalid, nil, "Tempool's agent does not run on %s: run it on Linux or macOS, or in a Linux container or WSL", runtime.GOOS)

// Open calls supported first, so nothing else here is ever reached.

func supported() error                                     { return errUnsupported }
func selfExe() (string, error)                             { return "", errUnsupported }
func readRow(int) (*row, error)                            { return nil, errUnsupported }
func listPIDs() ([]int, error)                             { return nil, errUnsupported }
func cookieOf(int) (string, error)                         { return "", errUnsupported }
func signalIdentity(identity, syscall.Signal) error        { return errUnsupported }
func signalGroup(int, syscall.Signal) error                { return errUnsupported }
func signalName(sig syscall.Signal) string                 { return sig.String() }
func reapAdopted(identity)                                 {}
func bootID() string                                       { return "" }
func becomeSubreaper() error                               { return errUnsupported }
func exitWatch(int) (wait func())                          { return func() {} }
func urgently(f func())                                    { f() }
func withUmask(int, func() error) error                    { return errUnsupported }
func socketPair() (ours, theirs *os.File, err error)       { return nil, nil, errUnsupported }
func tryLock(*os.File) error                               { return errUnsupported }
func sessionAttr(*account) *syscall.SysProcAttr            { return nil }
func usageOf(identity) usage                               { return usage{} }
func limitSelf(processLimits) (uint64, error)              { return 0, errUnsupported }
func (*account) become() error                             { return errUnsupported }
func closeOnExec(int)                                      {}
func execute(string, []string, []string) error             { return errUnsupported }
func changeLimits(int, processLimits, processLimits) error { return errUnsupported }
func kernelMeans() hostMeans                               { return hostMeans{} }

const sigCont = syscall.SIGKILL
