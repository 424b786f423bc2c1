package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestOnlyOwn: watches of a replica's own slots are distinguished from all others.
func TestOnlyOwn(t *testing.T) {
	own := func(slots ...int) string { return v1alpha1.LabelSlot + " in (" + join(slots) + ")" }
	none := v1alpha1.LabelSlot + " notin (" + join(upTo(slots)) + ")"
	for name, test := range map[string]struct {
		held    int // slots from 0 on
		watches []string
		want    string
	}{
		"its own":                    {10, []string{own(upTo(10)...), none}, ""},
		"two grants":                 {10, []string{own(0, 1, 2, 3, 4, 5, 6), own(7, 8, 9), none}, ""},
		"few that it has lost":       {19, []string{own(upTo(20)...), none}, ""},
		"a tenth that it lost":       {9, []string{own(upTo(10)...), none}, "1 are of others"},
		"all slots":                  {10, []string{own(upTo(slots)...), none}, "246 are of others"},
		"not all of its slots":       {10, []string{own(upTo(9)...), none}, "1 objects of its slots are missing"},
		"nothing":                    {10, nil, "10 objects of its slots are missing"},
		"not objects without a slot": {10, []string{own(upTo(10)...)}, "objects without a slot: false"},
		"everything":                 {10, []string{own(upTo(10)...), none, ""}, "does not select by slots"},
		"by another label":           {10, []string{own(upTo(10)...), none, "name in (0)"}, "does not select by slots"},
		"all but some": {
			10, []string{own(upTo(10)...), v1alpha1.LabelSlot + " notin (0,1)"}, "watches machinedeployments of others",
		},
		"all with any slot": {10, []string{own(upTo(10)...), v1alpha1.LabelSlot}, "watches machinedeployments of others"},
	} {
		t.Run(name, func(t *testing.T) {
			var watches []harness.Request
			for _, resource := range slotted {
				for _, selector := range test.watches {
					uri := "/apis/any/" + resource + "?labelSelector=" + url.QueryEscape(selector) + "&watch=true"
					watches = append(watches, harness.Request{User: "fleet-0", Resource: resource, URI: uri})
				}
			}
			held := map[int]bool{}
			for slot := range test.held {
				held[slot] = true
			}
			err := onlyOwn(watches, map[string]map[int]bool{"fleet-0": held})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func upTo(n int) (slots []int) {
	for slot := range n {
		slots = append(slots, slot)
	}
	return slots
}

func join(slots []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(slots), "[]"), " ", ",")
}
