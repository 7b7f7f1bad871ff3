package sandbox

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights of Landlock, see landlock(7).
const (
	readRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeRights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// fileRights are those that a rule for a file, not a directory, may have.
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// landlockABI is the first version that restricts truncate(2); before, a program could empty the files that it cannot
// write to.
const landlockABI = 3

// Ruleset is an open Landlock ruleset. A nil *Ruleset restricts nothing.
type Ruleset struct{ fd int }

// OpenFiles opens what the program may reach, with the agent's rights; call Restrict with the program's. It returns nil
// if files are not restricted.
func (s Sandbox) OpenFiles() (*Ruleset, error) {
	if !s.Files {
		return nil, nil
	}
	if s.PrivateTmp {
		s.Write = append(s.Write, tmpDirs...)
	}
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < landlockABI {
		return nil, errors.New("sandbox.read and sandbox.write need Landlock as of Linux 6.2; this host's kernel lacks it, " +
			"or it is not enabled (lsm=landlock)")
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: writeRights}
	if !s.ReadAll {
		attr.Handled_access_fs |= readRights
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("make a Landlock ruleset: %w", errno)
	}
	rules := &Ruleset{fd: int(fd)}
	unix.CloseOnExec(rules.fd)
	for _, allowed := range []struct {
		key    string
		paths  []string
		rights uint64
	}{
		{"sandbox.read", s.Read, readRights}, {"sandbox.write", s.Write, readRights | writeRights},
		{"", devices, readRights | writeRights},
	} {
		for _, path := range allowed.paths {
			err := rules.allow(path, allowed.rights&attr.Handled_access_fs)
			if errors.Is(err, os.ErrNotExist) && allowed.key == "" {
				continue // a container without this device
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", allowed.key, err)
			}
		}
	}
	return rules, nil
}

// allow grants rights on a path and everything below it.
func (r *Ruleset) allow(path string, rights uint64) error {
	file, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		rights &= fileRights
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(file.Fd())}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("allow %s: %w", path, errno)
	}
	return nil
}

// Restrict restricts this thread and what it executes. The thread must have no_new_privs.
func (r *Ruleset) Restrict() error {
	if r == nil {
		return nil
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.fd), 0, 0); errno != 0 {
		return fmt.Errorf("restrict the worker's files: %w", errno)
	}
	return unix.Close(r.fd)
}
