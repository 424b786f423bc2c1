package disruption

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// landscape returns the reports of so many replicas about 1,024 slots with machines of as many
// target clusters, each as large as a report may be.
func landscape(replicas int) (texts map[string]string, holders []string) {
	const slots, targets, zones = 1024, 1000, 3
	texts, holders = map[string]string{}, make([]string, slots)
	for r := range replicas {
		own := Own{}
		for slot := r; slot < slots; slot += replicas {
			own[slot], holders[slot] = Counts{}, fmt.Sprint("fleet-", r)
			for n := range 10 {
				namespace := fmt.Sprintf("shoot--project--%d", (slot*10+n)%targets)
				for z := range zones {
					count := Count{Ready: 3}
					if slot%50 == 0 {
						count = Count{NotReady: 3}
					}
					own[slot].Add(Scope{Target: namespace, Zone: fmt.Sprint("zone-", z)}, namespace, count)
				}
			}
		}
		texts[fmt.Sprint("fleet-", r)] = write(own)
	}
	return texts, holders
}

// TestReportsThatHaveNotChanged: only what has changed is parsed, and the result is the same.
func TestReportsThatHaveNotChanged(t *testing.T) {
	texts, holders := landscape(4)
	before := ParseReports(texts, holders)
	texts["fleet-1"] = texts["fleet-2"]
	delete(texts, "fleet-3")
	after := before.Next(texts, holders[1:])
	if diff := cmp.Diff(ParseReports(texts, holders[1:]), after, cmp.AllowUnexported(Reports{})); diff != "" {
		t.Errorf("(-parsed anew +got):\n%s", diff)
	}
	if reflect.ValueOf(after.by["fleet-0"]).Pointer() != reflect.ValueOf(before.by["fleet-0"]).Pointer() {
		t.Error("a report that has not changed was parsed again")
	}
	if _, there := before.by["fleet-3"]; !there || before.texts["fleet-1"] == texts["fleet-1"] {
		t.Error("the reports before have changed")
	}
}

// BenchmarkReports measures what each replica does when the report of one of 32 replicas has
// changed: to parse all of them, or the one.
func BenchmarkReports(b *testing.B) {
	texts, holders := landscape(32)
	bytes := 0
	for _, text := range texts {
		bytes += len(text)
	}
	first, other := texts["fleet-1"], texts["fleet-2"]
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ParseReports(texts, holders)
		}
		b.ReportMetric(float64(bytes), "report-bytes/op")
	})
	b.Run("changed", func(b *testing.B) {
		b.ReportAllocs()
		reports := ParseReports(texts, holders)
		for n := 0; b.Loop(); n++ {
			if texts["fleet-1"] = first; n%2 == 0 {
				texts["fleet-1"] = other
			}
			reports = reports.Next(texts, holders)
		}
	})
}
