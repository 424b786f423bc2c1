package membership

import "testing"

func TestIsSame(t *testing.T) {
	fit := func() Fitness {
		return Fitness{Acts: true, Observes: true, Serves: map[string]Service{"default": Serving}}
	}
	if !fit().IsSame(fit()) {
		t.Error("want equal reports to be the same")
	}
	for name, change := range map[string]func(*Fitness){
		"acts":     func(f *Fitness) { f.Acts = false },
		"observes": func(f *Fitness) { f.Observes = false },
		"serves":   func(f *Fitness) { f.Serves["default"] = Untried },
		"reason":   func(f *Fitness) { f.Reason = "a watch is broken" },
	} {
		other := fit()
		change(&other)
		if fit().IsSame(other) || other.IsSame(fit()) {
			t.Errorf("%s: want reports that differ in it not to be the same", name)
		}
	}
}
