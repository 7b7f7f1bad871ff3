package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attach makes a command start in the namespaces that the sandbox needs. The program that it starts must call Enter.
func (s Sandbox) Attach(attr *syscall.SysProcAttr) {
	if len(s.Join) > 0 {
		return
	}
	if s.NoNetwork {
		attr.Cloneflags |= unix.CLONE_NEWNET
	}
	if s.PrivateTmp {
		attr.Cloneflags |= unix.CLONE_NEWNS
	}
}

// Open opens the namespaces of a process that was started in the sandbox and still has the agent's credentials. Later
// the agent may lack the right to.
func (s Sandbox) Open(pid int) (open Namespaces, err error) {
	for _, namespace := range []struct {
		name  string
		isNew bool
	}{{"net", s.NoNetwork}, {"mnt", s.PrivateTmp}} {
		if !namespace.isNew || len(s.Join) > 0 {
			continue
		}
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, namespace.name))
		if err != nil {
			open.Close()
			return nil, fmt.Errorf("open the worker's sandbox: %w", err)
		}
		open = append(open, file)
	}
	return open, nil
}

// Explain adds to the error of a start what the sandbox needs.
func (s Sandbox) Explain(err error) error {
	if err != nil && s.hasNamespaces() &&
		(errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSPC)) {
		return fmt.Errorf("%w; sandbox.network = \"none\" and sandbox.private_tmp need an agent with CAP_SYS_ADMIN and a "+
			"kernel with namespaces", err)
	}
	return err
}

// Enter sets up the namespaces of this process, or joins another's. Call it on a locked thread, with the agent's
// privileges.
func (s Sandbox) Enter() error {
	if len(s.Join) > 0 {
		return s.join()
	}
	if s.PrivateTmp {
		if err := s.mountTmp(); err != nil {
			return fmt.Errorf("sandbox.private_tmp: %w", err)
		}
	}
	if s.NoNetwork {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("sandbox.network = \"none\": bring up the loopback interface: %w", err)
		}
	}
	return nil
}

// join enters the namespaces of the worker on this thread, which executes the program.
func (s Sandbox) join() error {
	if s.PrivateTmp { // a thread that shares its working directory with others cannot enter other mounts
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("enter the worker's sandbox: %w", err)
		}
	}
	for _, namespace := range s.Join {
		unix.CloseOnExec(namespace)
		if err := unix.Setns(namespace, 0); err != nil {
			return fmt.Errorf("enter the worker's sandbox: %w", err)
		}
	}
	if s.PrivateTmp && s.Dir != "" {
		if err := unix.Chdir(s.Dir); err != nil {
			return fmt.Errorf("enter pool.dir in the worker's sandbox: %w", err)
		}
	}
	return nil
}

// mountTmp replaces the temporary directories with empty ones in memory.
func (s Sandbox) mountTmp() error {
	kept := make(map[string]*os.File)
	for _, dir := range s.Keep {
		if isTemporary(dir) {
			file, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			kept[dir] = file
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private, for which the root directory must be a mount point, unlike that of a "+
			"plain chroot: %w", err)
	}
	for _, dir := range tmpDirs {
		info, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			continue // missing, or a link to the other
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	for dir, file := range kept {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep %s visible: %w", dir, err)
		}
	}
	return nil
}

func isTemporary(dir string) bool {
	for _, tmp := range tmpDirs {
		if strings.HasPrefix(path.Clean(dir), tmp+"/") {
			return true
		}
	}
	return false
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}
