package process

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// firstExtraFD is the descriptor of the first of a command's ExtraFiles.
const firstExtraFD = 3

// launch starts cmd under the plan's limits, and waits at most within for them to be in force.
func (p plan) launch(cmd *exec.Cmd, within time.Duration) (launchReply, error) {
	if p.cgroup != nil {
		left, err := p.cgroup.receive(cmd)
		if err != nil {
			return launchReply{}, err
		}
		defer left()
	}
	if p.limits.none() {
		return launchReply{}, p.start(cmd)
	}
	self, err := selfExe()
	if err != nil {
		return launchReply{}, fmt.Errorf("find this program to start it under limits: %w", err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return launchReply{}, err
	}
	defer ours.Close()
	order := launchOrder{Program: cmd.Path, Args: cmd.Args, Env: cmd.Env, Who: p.who, Limits: p.limits}
	cmd.ExtraFiles = append(append([]*os.File{}, cmd.ExtraFiles...), theirs)
	cmd.Path, cmd.Args = self, []string{launcherName, strconv.Itoa(firstExtraFD + len(cmd.ExtraFiles) - 1)}
	// From its first moment on the tree must be known by the cookie.
	cmd.Env = []string{EnvIncarnation + "=" + p.cookie, "GOMAXPROCS=1", "GOTRACEBACK=none"}
	cmd.SysProcAttr.Credential = nil
	err = p.start(cmd)
	theirs.Close()
	if err != nil {
		return launchReply{}, err
	}
	if err = ours.SetDeadline(time.Now().Add(within)); err == nil {
		var reply launchReply
		if reply, err = awaitLaunch(ours, order); err == nil {
			return reply, nil
		}
	}
	_ = cmd.Process.Kill()
	_ = waitChild(cmd)
	return launchReply{}, err
}
