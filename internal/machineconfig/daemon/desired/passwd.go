package desired

import (
	"strconv"
	"strings"
)

// ParseUsers reads the content of /etc/passwd. Lines that are not entries are left out.
func ParseUsers(content []byte) map[string]User {
	users := map[string]User{}
	for line := range strings.Lines(string(content)) {
		fields := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(fields) != 7 || fields[0] == "" {
			continue
		}
		uid, ok := parseID(fields[2])
		gid, ok2 := parseID(fields[3])
		if _, exists := users[fields[0]]; exists || !ok || !ok2 {
			continue
		}
		users[fields[0]] = User{UID: uid, GID: gid, Home: fields[5]}
	}
	return users
}

// ParseGroups reads the content of /etc/group. Lines that are not entries are left out.
func ParseGroups(content []byte) map[string]int {
	groups := map[string]int{}
	for line := range strings.Lines(string(content)) {
		fields := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(fields) != 4 || fields[0] == "" {
			continue
		}
		if _, exists := groups[fields[0]]; exists {
			continue
		}
		if gid, ok := parseID(fields[2]); ok {
			groups[fields[0]] = gid
		}
	}
	return groups
}

// parseID reads a number of a user or a group. The largest one means none to chown.
func parseID(text string) (int, bool) {
	id, err := strconv.ParseUint(text, 10, 32)
	return int(id), err == nil && id != 1<<32-1
}
