package lifecycle

import (
	"net/url"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// A placeholder of machine configuration is filled in with as many bytes as it is counted with,
// plain or URL-encoded.
func TestUserDataCountsThePlaceholdersOfMachineConfiguration(t *testing.T) {
	values := map[string]string{v1alpha1.PlaceholderMachineConfig: "a+b/c==", v1alpha1.PlaceholderMachineConfigName: "rendered-p-1"}
	given, pairs := "<<MACHINE_CONFIG>> of <<MACHINE_CONFIG_NAME>>, "+url.QueryEscape(v1alpha1.PlaceholderMachineConfig), []string{}
	for placeholder, value := range values {
		pairs = append(pairs, placeholder, value, url.QueryEscape(placeholder), url.QueryEscape(value))
	}
	w := fresh()
	w.Secret.UserData, w.Config = []byte(given), ConfigFact{Read: true, Values: values}
	if got, want := userDataSize(w), len(strings.NewReplacer(pairs...).Replace(given)); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

// The size is that which the user data has when it is filled in.
func TestUserDataSize(t *testing.T) {
	const token, name = "abcdef.0123456789abcdef", "worker.a/1"
	encodedToken, encodedName := url.QueryEscape(v1alpha1.PlaceholderBootstrapToken), url.QueryEscape(v1alpha1.PlaceholderMachineName)
	for _, given := range []string{
		"", "boot", "<<BOOTSTRAP_TOKEN>>", "<<MACHINE_NAME>> as <<MACHINE_NAME>>", encodedToken + encodedName + encodedToken,
		"<<<BOOTSTRAP_TOKEN>>><<MACHINE_NAME>>" + encodedName,
	} {
		for _, noTarget := range []bool{false, true} {
			w := fresh()
			w.Machine.Name, w.NoTarget, w.Secret.UserData = name, noTarget, []byte(given)
			pairs := []string{v1alpha1.PlaceholderMachineName, name, encodedName, url.QueryEscape(name)}
			if !noTarget {
				pairs = append(pairs, v1alpha1.PlaceholderBootstrapToken, token, encodedToken, url.QueryEscape(token))
			}
			if got, want := userDataSize(w), len(strings.NewReplacer(pairs...).Replace(given)); got != want {
				t.Errorf("%q, without a target: %t: %d, want %d", given, noTarget, got, want)
			}
		}
	}
}

func TestWhoWaitsForSecrets(t *testing.T) {
	type given [][2]string // facts, see facts_test.go
	backoff := [2]string{"backoff", "until 1m, step 40s, after Unauthenticated"}
	deleted := given{{"machine", "created"}, {"deleted", ""}, {"phase", "Terminating"}, {"node", "absent"}}
	for _, tc := range []struct {
		name  string
		given given
		want  bool
	}{
		{"a Secret is missing", given{{"secret", "missing"}}, true},
		{"a Secret of another namespace is missing", given{{"secret", "foreign"}}, true},
		{"the user data is too large", given{{"secret", "too large for a VM"}}, true},
		{"there is no user data", given{{"secret", "empty"}}, true},
		{"the user data has a placeholder that nothing replaces", given{{"secret", "<<MACHINE_CONFIG>>"}, {"config", "none"}}, true},
		{"the Secrets have not been read", given{{"class", "none"}, {"secret", "not read"}}, false},
		{"the provider is wrong, and the Secrets are not", given{{"class", "without a driver"}}, false},
		{
			"the provider is wrong, and the user data as large as a VM takes",
			given{{"class", "without a driver"}, {"secret", "as large as a VM takes"}},
			false,
		},
		{"the cloud has failed", given{{"phase", "CrashLoopBackOff"}, {"cloud", "create_machine Unauthenticated"}}, true},
		{"the cloud is left alone", given{{"phase", "CrashLoopBackOff"}, {"last", "Create Failed Unauthenticated"}, backoff}, true},
		{"it waits for its Node", given{{"machine", "created"}}, false},
		{"it runs", given{{"machine", "created"}, {"phase", "Running"}, {"node", "ready"}}, false},
		{"it has failed for good", given{{"machine", "created"}, {"phase", "Failed"}, backoff}, false},
		{"it is deleted, and a Secret is missing", append(deleted, [2]string{"secret", "missing"}), true},
		{
			"it is deleted, which needs no user data", append(deleted, [2]string{"secret", "empty"}, [2]string{"vm", "ending since 0s, asked 0s"}),
			false,
		},
		{
			"it is deleted, and the user data is too large",
			append(deleted, [2]string{"secret", "too large for a VM"}, [2]string{"vm", "ending since 0s, asked 0s"}), false,
		},
		{"it is deleted, and has no configuration to boot with", append(
			deleted, [2]string{"secret", "<<MACHINE_CONFIG>>"}, [2]string{"config", "none"}, [2]string{"vm", "ending since 0s, asked 0s"},
		), false},
		{"it is deleted, and its target cluster does not answer", given{
			{"machine", "created"}, {"deleted", ""}, {"secret", "missing"}, {"servers", "away since 5m"},
		}, false},
		{"it is deleted, and the cloud has failed", append(deleted, [2]string{"cloud", "delete_machine PermissionDenied"}), true},
		{"it is deleted, and the cloud is left alone", append(deleted, backoff), true},
		{"its Node is drained", append(deleted, [2]string{"secret", "missing"}, [2]string{"drain", "going on"}), false},
		{"it is gone", append(deleted, [2]string{"machine", "without our finalizer"}, backoff), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := fresh()
			for _, fact := range tc.given {
				if err := facts[fact[0]](&w, fact[1]); err != nil {
					t.Fatal(err)
				}
			}
			v := Decide(w)
			w.Failure = nil
			if got := AwaitsSecrets(w, v); got != tc.want || v.Do != Rest {
				t.Errorf("waits: %t, want %t; the verdict is %s", got, tc.want, v.Do)
			}
		})
	}
}
