package merge

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/planted"
)

// raw returns a MachineConfig with any bytes as its Ignition config.
func raw(name string, document []byte) *v1alpha1.MachineConfig {
	c := &v1alpha1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Config.Raw = document
	return c
}

// FuzzMerge reads any bytes as an Ignition config and merges it over another one. It gets the same
// answer twice; a result is a valid MachineConfig, and merged alone it stays as it is.
func FuzzMerge(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `[]`, `{"ignition":{"version":"3.5.0"}}`, `{"ignition":{"version":"2.2.0"}}`, `{"ignition":{"version":"3.6.0"}}`,
		`{"ignition":{"version":"3.0.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:;base64,YQ==","compression":"gzip"}}]}}`,
		`{"ignition":{"version":"3.2.0"},"storage":{"luks":[{"name":"l","device":"/dev/a","clevis":{"tang":[{"url":"https://a","thumbprint":"x"}]}}]}}`,
		`{"ignition":{"version":"3.3.0"},"storage":{"disks":[{"device":"/dev/a","partitions":[{"number":1,"label":"x"}]}],"raid":[{"name":"r","level":"raid0","devices":["/dev/a"]}],"filesystems":[{"device":"/dev/a","path":"/x","format":"xfs"}]}}`,
		`{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"a.service","contents":"[Service]\nA=b","dropins":[{"name":"a.conf","contents":"["}]}]},"kernelArguments":{"shouldExist":["a"]}}`,
		`{"ignition":{"version":"3.5.0","security":{"tls":{"certificateAuthorities":[{"source":"data:,a"}]}},"proxy":{"httpProxy":"http://a"},"timeouts":{"httpTotal":1}}}`,
		`{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a"],"uid":1}],"groups":[{"name":"g"}]}}`,
		`{"IGNITION":{"Version":"3.5.0"},"storage":{"links":[{"path":"/a","target":"b","hard":true}],"directories":[{"path":"/a/b"}]}}`,
	} {
		f.Add([]byte(seed))
	}
	base := raw("00", []byte(
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a","compression":"gzip"}}]},"systemd":{"units":[{"name":"a.service","enabled":true}]}}`,
	))
	f.Fuzz(func(t *testing.T, document []byte) {
		configs := []*v1alpha1.MachineConfig{base, raw("50", document)}
		first, err := Merge(configs, nil, Fleet{})
		second, again := Merge(configs, nil, Fleet{})
		if fmt.Sprint(err) != fmt.Sprint(again) || string(first.Spec.Config.Raw) != string(second.Spec.Config.Raw) {
			t.Fatalf("two answers: %v and %v\n%s\n%s", err, again, first.Spec.Config.Raw, second.Spec.Config.Raw)
		}
		if err != nil {
			var p *Error
			if !errors.As(err, &p) || p.Reason == "" || len(p.Error()) > bounded.Message {
				t.Fatalf("want a short *Error with a reason, got %#v", err)
			}
			return
		}
		third, err := Merge([]*v1alpha1.MachineConfig{raw("00", first.Spec.Config.Raw)}, nil, Fleet{})
		if err != nil || string(third.Spec.Config.Raw) != string(first.Spec.Config.Raw) {
			t.Fatalf("a result merged alone (%v):\n%s\n%s", err, first.Spec.Config.Raw, third.Spec.Config.Raw)
		}
		if p := Irreconcilable(&first.Spec, third); p != nil {
			t.Fatalf("not reconcilable with itself: %v", p)
		}
		if _, err := v1alpha1.RenderedName("p", &first.Spec); err != nil {
			t.Fatal(err)
		}
	})
}

// Contents of files and units are in no message, however they are broken.
func TestMessagesHaveNoContents(t *testing.T) {
	const secret = "hunter2-correct-horse"
	for _, document := range []string{
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:text/plain;hunter2-correct-horse,"}}]}}`,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:;base64,hunter2-correct-horse%"}}]}}`,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"hunter2-correct-horse"}}]}}`,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"https://hunter2-correct-horse@example.com"}}]}}`,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":["hunter2-correct-horse"]}}]}}`,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":"hunter2-correct-horse"}]}}`,
		`{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service","contents":"[Service] hunter2-correct-horse\n"}]}}`,
		`{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service","contents":"[Service\nhunter2-correct-horse"}]}}`,
		`{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service","dropins":[{"name":"a.conf","contents":"[Service] hunter2-correct-horse"}]}]}}`,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a","verification":{"hash":"md5-hunter2-correct-horse"}}}]}}`,
		`{"ignition":{"version":"3.5.0"}, hunter2-correct-horse`,
	} {
		_, err := Merge([]*v1alpha1.MachineConfig{raw("50", []byte(document))}, nil, Fleet{})
		if err == nil {
			t.Errorf("%s: want a problem", document)
			continue
		}
		if found := (planted.Secrets{"content": secret}).Find(err.Error()); len(found) > 0 {
			t.Errorf("%s:\n%s", document, found)
		}
	}
}

func TestMergeTooMuchRefused(t *testing.T) {
	many := make([]*v1alpha1.MachineConfig, MaxConfigs+1)
	for i := range many {
		many[i] = raw(fmt.Sprintf("%03d", i), nil)
	}
	arguments := raw("00", nil)
	arguments.Spec.KernelArguments = make([]string, maxKernelArguments)
	for i := range arguments.Spec.KernelArguments {
		arguments.Spec.KernelArguments[i] = "a"
	}
	big := func(name string, size int) *v1alpha1.MachineConfig {
		return raw(name,
			fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/%s","contents":{"source":"data:,%s"}}]}}`,
				name, strings.Repeat("a", size)))
	}
	for name, tc := range map[string]struct {
		configs []*v1alpha1.MachineConfig
		fits    bool
	}{
		"as many as can be":     {many[:MaxConfigs], true},
		"one too many":          {many, false},
		"as many arguments":     {[]*v1alpha1.MachineConfig{arguments}, true},
		"one argument too many": {[]*v1alpha1.MachineConfig{arguments, config("50", `{"kernelArguments":["a"]}`)}, false},
		"as large as can be":    {[]*v1alpha1.MachineConfig{big("a", MaxResult-1000)}, true},
		"too large together":    {[]*v1alpha1.MachineConfig{big("a", MaxResult/2), big("b", MaxResult/2)}, false},
		"too large to be read":  {[]*v1alpha1.MachineConfig{big("a", MaxInput)}, false},
	} {
		_, err := Merge(tc.configs, nil, Fleet{})
		var p *Error
		if tc.fits && err != nil || !tc.fits && (!errors.As(err, &p) || p.Reason != ReasonTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
