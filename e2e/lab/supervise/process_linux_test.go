package supervise

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	rest := " S" + strings.Repeat(" 7", 18) + " 4242 0 0"
	for line, want := range map[string]bool{
		"12 (sleep)" + rest:      true,
		"12 (a) b) (c)" + rest:   true,
		"12 (sleep) S 1 2 3":     false,
		"":                       false,
		"12 (sleep" + rest:       false,
		"12 (x) SS" + rest[2:]:   false,
		"12 (x) S 7 7 7 nothing": false,
	} {
		state, start, err := parseStat(line)
		if (err == nil) != want {
			t.Errorf("parseStat(%q): %v", line, err)
			continue
		}
		if diff := cmp.Diff([]uint64{'S', 4242}, []uint64{uint64(state), start}); want && diff != "" {
			t.Errorf("parseStat(%q) (-want +got):\n%s", line, diff)
		}
	}
}
