package process

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/tempool/tempool/process/launcher"
)

// lookUpCredentials resolves a user and a group, each by name or number. It returns nil if both are empty or the
// agent's own.
func lookUpCredentials(userName, groupName string) (*launcher.Credentials, error) {
	if userName == "" && groupName == "" {
		return nil, nil
	}
	c := &launcher.Credentials{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), KeepGroups: true}
	if userName != "" {
		var err error
		if c, err = lookUpUser(userName); err != nil {
			return nil, err
		}
	}
	if groupName != "" {
		gid, err := lookUpGroup(groupName)
		if err != nil {
			return nil, err
		}
		c.GID = gid
	}
	if c.UID == uint32(os.Getuid()) && c.GID == uint32(os.Getgid()) {
		return nil, nil
	}
	return c, nil
}

func lookUpUser(name string) (*launcher.Credentials, error) {
	found, err := user.Lookup(name)
	if err != nil {
		uid, numErr := strconv.ParseUint(name, 10, 32)
		if numErr != nil {
			return nil, coded(CodeInvalid, err, "pool.user %q is not a user of this host", name)
		}
		found, err = user.LookupId(name)
		if err != nil { // a numeric user needs no entry
			return &launcher.Credentials{UID: uint32(uid), GID: uint32(uid)}, nil
		}
	}
	uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		return nil, coded(CodeInvalid, nil, "pool.user %q has no numeric id", name)
	}
	c := &launcher.Credentials{UID: uint32(uid), GID: uint32(gid)}
	ids, err := found.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("look up the groups of pool.user %q: %w", name, err)
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			c.Groups = append(c.Groups, uint32(n))
		}
	}
	return c, nil
}

func lookUpGroup(name string) (uint32, error) {
	id := name
	if found, err := user.LookupGroup(name); err == nil {
		id = found.Gid
	}
	gid, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, coded(CodeInvalid, nil, "pool.group %q is not a group of this host", name)
	}
	return uint32(gid), nil
}
