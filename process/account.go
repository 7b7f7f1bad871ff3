package process

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// account is who a subprocess runs as.
type account struct {
	UID        uint32   `json:"uid"`
	GID        uint32   `json:"gid"`
	Groups     []uint32 `json:"groups,omitempty"`
	KeepGroups bool     `json:"keep_groups,omitempty"` // leave the supplementary groups as they are
}

// lookUpAccount resolves a user and a group, by name or number. It returns nil where both are empty or name who we already are.
func lookUpAccount(userName, groupName string) (*account, error) {
	if userName == "" && groupName == "" {
		return nil, nil
	}
	who := &account{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), KeepGroups: true}
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
		who.GID = gid
	}
	if who.UID == uint32(os.Getuid()) && who.GID == uint32(os.Getgid()) {
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
			a.UID, a.GID, a.Groups, a.KeepGroups = uint32(uid), uint32(uid), nil, false
			return nil
		}
	}
	uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		return coded(CodeInvalid, nil, "pool.user %q has no numeric id", name)
	}
	a.UID, a.GID, a.KeepGroups = uint32(uid), uint32(gid), false
	ids, err := found.GroupIds()
	if err != nil {
		return fmt.Errorf("look up the groups of %q: %w", name, err)
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			a.Groups = append(a.Groups, uint32(n))
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
