package required

import "testing"

type config struct {
	Name     string
	Call     func()
	Switch   bool
	Optional *int
}

func TestFields(t *testing.T) {
	for name, tc := range map[string]struct {
		config config
		want   string
	}{
		"zero value": {config{}, "required.config: expected all required fields, got none for Name, Call"},
		"one":        {config{Name: "n"}, "required.config: expected all required fields, got none for Call"},
		"all":        {config{Name: "n", Call: func() {}}, ""},
	} {
		got := ""
		if err := Fields(tc.config, "Optional"); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
