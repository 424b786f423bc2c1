package harness

import "testing"

func TestOneVMEach(t *testing.T) {
	of := func(uid string) AzureResource { return AzureResource{Tags: map[string]string{TagAzureUID: uid}} }
	for name, tc := range map[string]struct {
		created, want []string
		isRight       bool
	}{
		"one each":            {[]string{"a", "b"}, []string{"a", "b"}, true},
		"further machines":    {[]string{"a", "b"}, []string{"a"}, true},
		"a second VM":         {[]string{"a", "a"}, []string{"a"}, false},
		"a second of another": {[]string{"a", "b", "b"}, []string{"a"}, false},
		"none":                {[]string{"a"}, []string{"a", "b"}, false},
	} {
		var all AzureInventory
		for _, uid := range tc.created {
			all.Created = append(all.Created, of(uid))
		}
		if err := all.OneVMEach(tc.want...); (err == nil) != tc.isRight {
			t.Errorf("%s: %v", name, err)
		}
	}
}
