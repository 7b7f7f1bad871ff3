package worker

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// readHostMemory reads the files of proc and sysfs below root: what is available on the host, or within the limits of the control groups
// this process is in where that is less, and how much tasks stall for memory, on the host or in those groups, whichever is more.
func readHostMemory(root string) (HostMemory, error) {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return HostMemory{}, fmt.Errorf("read the host's memory: %w", err)
	}
	figures := parseFields(string(text))
	look := HostMemory{TotalBytes: 1024 * figures["MemTotal:"], AvailableBytes: 1024 * figures["MemAvailable:"]}
	if look.TotalBytes <= 0 {
		return HostMemory{}, fmt.Errorf("read the host's memory: %s names no MemTotal", filepath.Join(root, "proc/meminfo"))
	}
	look.addPressure(filepath.Join(root, "proc/pressure/memory"))
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return look, nil // a kernel without control groups
	}
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		switch {
		case controllers == "":
			look.addGroups(filepath.Join(root, "sys/fs/cgroup"), group, cgroupV2Files)
		case hasWord(controllers, "memory"):
			look.addGroups(filepath.Join(root, "sys/fs/cgroup/memory"), group, cgroupV1Files)
		}
	}
	return look, nil
}

// groupFiles are the names of what a control group tells of its memory.
type groupFiles struct{ limit, use, cache, pressure string }

var (
	cgroupV2Files = groupFiles{"memory.max", "memory.current", "inactive_file", "memory.pressure"}
	cgroupV1Files = groupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", ""}
)

// addGroups takes the limits of a group and of all above it in. In a container the path may be that of the host, where only the mount itself
// is there.
func (m *HostMemory) addGroups(mount, group string, names groupFiles) {
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		m.addGroup(filepath.Join(mount, group), names)
		if group == "/" {
			return
		}
	}
}

func (m *HostMemory) addGroup(dir string, names groupFiles) {
	if names.pressure != "" {
		m.addPressure(filepath.Join(dir, names.pressure))
	}
	limit, limited := readNumber(filepath.Join(dir, names.limit))
	use, known := readNumber(filepath.Join(dir, names.use))
	if !limited || !known || limit >= m.TotalBytes && use < m.TotalBytes-m.AvailableBytes {
		return // none, or none that could be reached before the host's own memory is
	}
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat")) // without it, files in memory count as used
	m.TotalBytes = min(m.TotalBytes, limit)
	m.AvailableBytes = min(m.AvailableBytes, max(0, limit-use+parseFields(string(stat))[names.cache]))
}

// addPressure takes the figures of a pressure file in, if there is one.
func (m *HostMemory) addPressure(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return // the kernel does not count stalls
	}
	for line := range strings.Lines(string(text)) {
		for word := range strings.FieldsSeq(line) {
			average, found := strings.CutPrefix(word, "avg10=")
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

// readNumber reads a file that holds one; "max" is none.
func readNumber(file string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// parseFields reads lines of a name and a number.
func parseFields(text string) map[string]int64 {
	found := map[string]int64{}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 {
			if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
				found[words[0]] = n
			}
		}
	}
	return found
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}
