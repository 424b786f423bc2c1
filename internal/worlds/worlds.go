package worlds

import "testing"

// Some returns how many of all worlds a test tries: all of them, and in the short form a tenth, but at least one.
func Some(all int) int {
	if !testing.Short() {
		return all
	}
	return max(1, all/10)
}
