package worker

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// readHostMemory reads proc and sysfs below root. It returns the memory of the host, or of the tightest cgroup that
// this process is in where that is less, and the highest stall figures of the host and those cgroups.
func readHostMemory(root string) (hostMemory, error) {
	meminfo := filepath.Join(root, "proc/meminfo")
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return hostMemory{}, fmt.Errorf("read the host's memory: %w", err)
	}
	fields := parseFields(string(text))
	memory := hostMemory{TotalBytes: 1024 * fields["MemTotal:"], AvailableBytes: 1024 * fields["MemAvailable:"]}
	if memory.TotalBytes <= 0 {
		return hostMemory{}, fmt.Errorf("read the host's memory: %s has no MemTotal", meminfo)
	}
	memory.addPressure(filepath.Join(root, "proc/pressure/memory"))
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return memory, nil // a kernel without cgroups
	}
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		switch {
		case controllers == "":
			memory.addGroups(filepath.Join(root, "sys/fs/cgroup"), group, cgroupV2Files)
		case slices.Contains(strings.Split(controllers, ","), "memory"):
			memory.addGroups(filepath.Join(root, "sys/fs/cgroup/memory"), group, cgroupV1Files)
		}
	}
	return memory, nil
}

// groupFiles are the names of a cgroup's memory files; cache is a field of memory.stat.
type groupFiles struct{ limit, use, cache, pressure string }

var (
	cgroupV2Files = groupFiles{"memory.max", "memory.current", "inactive_file", "memory.pressure"}
	cgroupV1Files = groupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", ""}
)

// addGroups applies the limits of a cgroup and of all its parents. In a container the path may be the host's, of which
// only the mount exists.
func (m *hostMemory) addGroups(mount, group string, names groupFiles) {
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		m.addGroup(filepath.Join(mount, group), names)
		if group == "/" {
			return
		}
	}
}

func (m *hostMemory) addGroup(dir string, names groupFiles) {
	if names.pressure != "" {
		m.addPressure(filepath.Join(dir, names.pressure))
	}
	limit, limited := readNumber(filepath.Join(dir, names.limit))
	use, known := readNumber(filepath.Join(dir, names.use))
	if !limited || !known || limit >= m.TotalBytes && use < m.TotalBytes-m.AvailableBytes {
		return // no limit, or one that the host's own memory keeps out of reach
	}
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat")) // without it, the page cache counts as used
	m.TotalBytes = min(m.TotalBytes, limit)
	m.AvailableBytes = min(m.AvailableBytes, max(0, limit-use+parseFields(string(stat))[names.cache]))
}

// addPressure raises the stall figures to those of a pressure file, if it exists.
func (m *hostMemory) addPressure(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return // a kernel without pressure stall information
	}
	for line := range strings.Lines(string(text)) {
		for field := range strings.FieldsSeq(line) {
			average, found := strings.CutPrefix(field, "avg10=")
			percent, err := strconv.ParseFloat(average, 64)
			switch {
			case !found || err != nil:
			case strings.HasPrefix(line, "some "):
				m.SomeAvg10 = max(m.SomeAvg10, percent)
			case strings.HasPrefix(line, "full "):
				m.FullAvg10 = max(m.FullAvg10, percent)
			}
		}
	}
}

// readNumber reads a file that holds one number. It returns false for any other content, such as "max".
func readNumber(file string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// parseFields parses lines of a name and a number.
func parseFields(text string) map[string]int64 {
	fields := map[string]int64{}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 {
			if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
				fields[words[0]] = n
			}
		}
	}
	return fields
}
