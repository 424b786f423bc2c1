package membership

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAccountsAreReadAsTheyWereWritten(t *testing.T) {
	var slots SlotSet
	for _, slot := range []int{0, 7, 8, 4095} {
		slots = slots.With(slot)
	}
	want := Accounts{
		Failing: []Account{{Key: "a/1", Class: "a/small", Slots: slots}},
		Asked:   []Account{{Key: "driver aws", Reached: true}},
	}
	got, err := ParseAccounts(want.String())
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v: (-want +got):\n%s", err, cmp.Diff(want, got))
	}
	for slot, want := range map[int]bool{-1: false, 0: true, 1: false, 8: true, 9: false, 4095: true, 4096: false} {
		if slots.Has(slot) != want {
			t.Errorf("slot %d is in the set: %t, want %t", slot, !want, want)
		}
	}
	if (Accounts{}).String() != "" || !(SlotSet{0, 0}).IsEmpty() || slots.IsEmpty() {
		t.Error("want nothing reported as nothing")
	}
}

func TestInvalidReportsOfAccountsReportNothing(t *testing.T) {
	many := Accounts{Failing: make([]Account, MostFailing+1)}
	for i := range many.Failing {
		many.Failing[i].Key = "k"
	}
	for name, text := range map[string]string{
		"no JSON":       "{",
		"no key":        `{"failing":[{"class":"a/b"}]}`,
		"a long key":    `{"failing":[{"key":"` + strings.Repeat("k", mostKey+1) + `"}]}`,
		"a long class":  `{"failing":[{"key":"k","class":"` + strings.Repeat("c", mostKey+1) + `"}]}`,
		"too many":      many.String(),
		"slots no bits": `{"failing":[{"key":"k","slots":"-"}]}`,
		"too long":      `{"failing":[]` + strings.Repeat(" ", mostAccounts) + `}`,
	} {
		if got, err := ParseAccounts(text); err == nil || len(got.Failing)+len(got.Asked) > 0 {
			t.Errorf("%s: want an error and nothing reported, got %+v, %v", name, got, err)
		}
	}
}
