package assignment

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// TestGolden compares the slots of 1,000 keys and the tables of some fleets with the golden file.
func TestGolden(t *testing.T) {
	var got strings.Builder
	fmt.Fprintf(&got, "version %s\n\n# slot of a key: by deployment of 256, by deployment of 1000, by namespace of 256\n", RingVersion)
	byDeployment, many, byNamespace := newSpread(t, 256, ByDeployment), newSpread(t, 1000, ByDeployment), newSpread(t, 256, ByNamespace)
	for i := range 1000 {
		namespace, name := fmt.Sprintf("shoot--project-%d--cluster", i%37), fmt.Sprintf("worker-%d-z%d", i/3, i%3)
		fmt.Fprintf(&got, "%s/%s %d %d %d\n",
			namespace, name, byDeployment.Of(namespace, name), many.Of(namespace, name), byNamespace.Of(namespace, name))
	}
	for _, fleet := range [][]string{{"fleet-0"}, fleetOf("fleet", 2), fleetOf("fleet", 3), fleetOf("fleet", 12), {"a", "b-1", "b-11"}} {
		fmt.Fprintf(&got, "\n# table of 256 slots: %s\n", strings.Join(fleet, " "))
		for row := range slices.Chunk(Table(256, fleet), 16) {
			fmt.Fprintln(&got, strings.Join(row, " "))
		}
	}
	golden.Compare(t, "testdata/ring.golden", got.String())
	if t.Failed() {
		t.Log("each line that changes moves machines to another slot, and needs a new Version and a decision in docs/adr")
	}
}

func TestNewSpread(t *testing.T) {
	for _, bad := range []int{-1, 0, MaxSlots + 1} {
		if _, err := NewSpread(bad, ByDeployment); err == nil {
			t.Errorf("%d slots: want an error", bad)
		}
	}
	for _, good := range []int{1, 256, MaxSlots} {
		if s := newSpread(t, good, ByNamespace); s.Count() != good || s.By() != ByNamespace {
			t.Errorf("want %d slots by namespace, got %+v", good, s)
		}
	}
	if _, err := NewSpread(256, "node"); err == nil {
		t.Error("sharding by node: want an error")
	}
	if by, err := ParseShardBy("namespace"); err != nil || by != ByNamespace {
		t.Errorf("want namespace, got %q, %v", by, err)
	}
	if got := (Spread{}).Of("a", "b"); got != 0 {
		t.Errorf("want slot 0 only of the zero value, got %d", got)
	}
}

// TestKeysOfANamespace checks that they share a slot by namespace, and are spread by deployment.
func TestKeysOfANamespace(t *testing.T) {
	count := func(s Spread) int {
		seen := map[int]bool{}
		for i := range 1000 {
			seen[s.Of("default", fmt.Sprint("worker-", i))] = true
		}
		return len(seen)
	}
	if got := count(newSpread(t, 256, ByNamespace)); got != 1 {
		t.Errorf("by namespace: want 1 slot, got %d", got)
	}
	// Of 256 slots, 256 × (1 - (255/256)^1000) = 251 are expected to get at least one of 1,000 keys.
	if got := count(newSpread(t, 256, ByDeployment)); got < 240 {
		t.Errorf("by deployment: want about 251 slots, got %d", got)
	}
}

func TestOfDoesNotAllocate(t *testing.T) {
	s := newSpread(t, 256, ByDeployment)
	if got := testing.AllocsPerRun(100, func() {
		s.Of("shoot--a-long-project--a-long-cluster", "a-long-name-of-a-machine-deployment")
	}); got != 0 {
		t.Errorf("want no allocation, got %v", got)
	}
}

func TestTableWithoutReplicas(t *testing.T) {
	if diff := cmp.Diff([]string{"", "", ""}, Table(3, nil)); diff != "" {
		t.Errorf("three slots, no replica: %s", diff)
	}
	if got := Table(0, []string{"a"}); len(got) != 0 {
		t.Errorf("no slots: want an empty table, got %v", got)
	}
}

// TestTable draws fleets of any size, with names that are prefixes of each other, and with more
// replicas than slots.
func TestTable(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		slots := rapid.IntRange(1, 300).Draw(t, "slots")
		fleet := rapid.SliceOfNDistinct(rapid.StringMatching(`[ab](-[0-9]{1,2})?|x-1{1,4}`), 1, 60, rapid.ID).Draw(t, "fleet")
		table := Table(slots, fleet)

		shuffled := append(rapid.Permutation(fleet).Draw(t, "shuffled"), fleet[0])
		if diff := cmp.Diff(table, Table(slots, shuffled)); diff != "" {
			t.Fatalf("another order, a name twice: %s", diff)
		}
		limit := int(math.Ceil(float64(slots) / float64(len(fleet)) * load))
		for name, n := range counted(table) {
			if !slices.Contains(fleet, name) || n > limit {
				t.Fatalf("%q has %d slots; want at most %d, of %v", name, n, limit, fleet)
			}
		}
	})
}

// TestJoin checks that a replica that joins n others takes about 1/(n+1) of the slots, and that
// little else moves.
func TestTableJoin(t *testing.T) {
	const slots = 4096 // many, to measure the table and not chance
	for n := 1; n < 20; n++ {
		before, after := Table(slots, fleetOf("fleet", n)), Table(slots, fleetOf("fleet", n+1))
		newcomer := fmt.Sprintf("fleet-%d", n)
		taken, sideways := 0, 0
		for slot := range after {
			switch {
			case after[slot] == newcomer:
				taken++
			case after[slot] != before[slot]:
				sideways++
			}
		}
		if share := slots / (n + 1); taken < share*2/3 || taken > share*5/4+1 {
			t.Errorf("%d replicas and one more: it takes %d of %d slots; want about %d", n, taken, slots, share)
		}
		if sideways > slots/50 {
			t.Errorf("%d replicas and one more: %d of %d slots move between the others; want at most 2 of 100", n, sideways, slots)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	s := newSpread(b, 256, ByDeployment)
	b.ReportAllocs()
	for b.Loop() {
		s.Of("shoot--project--cluster", "worker-z1")
	}
}

func BenchmarkTable(b *testing.B) {
	fleet := fleetOf("fleet", 50)
	for b.Loop() {
		Table(256, fleet)
	}
}

func newSpread(tb testing.TB, count int, by ShardBy) Spread {
	tb.Helper()
	s, err := NewSpread(count, by)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func fleetOf(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return all
}

func counted(table []string) map[string]int {
	count := map[string]int{}
	for _, name := range table {
		count[name]++
	}
	return count
}
