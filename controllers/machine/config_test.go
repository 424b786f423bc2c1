package machine

import "testing"

func TestNew_WithoutConfig_NamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{})
	const want = "machine: expected all required fields of Config, got none for Clock, Deletions, Drivers, Events, Machines, Metadata, Secrets, Targets, View"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
