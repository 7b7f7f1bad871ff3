package process

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// account is who a subprocess runs as.
type account struct {
	uid, gid   uint32
	groups     []uint32
	keepGroups bool // leave the supplementary groups as they are
}

// lookUpAccount resolves a user and a group, by name or number. It returns nil where both are empty or name who we already are.
func lookUpAccount(userName, groupName string) (*account, error) {
	if userName == "" && groupName == "" {
		return nil, nil
	}
	who := &account{uid: uint32(os.Getuid()), gid: uint32(os.Getgid()), keepGroups: true}
	if userName != "" {
		if err := who.setUser(userName); err != nil {
			return nil, err
		}
	}
	if groupName != "" {
		gid, err := groupID(groupName)
		if err != nil {
			return nil, err
		}
		who.gid = gid
	}
	if who.uid == uint32(os.Getuid()) && who.gid == uint32(os.Getgid()) {
		return nil, nil
	}
	return who, nil
}

func (a *account) setUser(name string) error {
	found, err := user.Lookup(name)
	if err != nil {
		uid, numErr := strconv.ParseUint(name, 10, 32)
		if numErr != nil {
			return coded(CodeInvalid, err, "pool.user %q is not a user of this host", name)
		}
		found, err = user.LookupId(name)
		if err != nil { // a number needs no entry
			a.uid, a.gid, a.groups, a.keepGroups = uint32(uid), uint32(uid), nil, false
			return nil
		}
	}
	uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		return coded(CodeInvalid, nil, "pool.user %q has no numeric id", name)
	}
	a.uid, a.gid, a.keepGroups = uint32(uid), uint32(gid), false
	ids, err := found.GroupIds()
	if err != nil {
		return fmt.Errorf("look up the groups of %q: %w", name, err)
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			a.groups = append(a.groups, uint32(n))
		}
	}
	return nil
}

func groupID(name string) (uint32, error) {
	if found, err := user.LookupGroup(name); err == nil {
		name = found.Gid
	}
	gid, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return 0, coded(CodeInvalid, nil, "pool.group %q is not a group of this host", name)
	}
	return uint32(gid), nil
}
