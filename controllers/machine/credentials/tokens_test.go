package credentials

import (
	"maps"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// life is how long the tokens of the tests live.
const life = 20 * time.Minute

var machine = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: "u"}}

// newTokens returns the Tokens of a process, at a time.
func newTokens(at time.Time) *Tokens {
	t, err := NewTokens(TokensConfig{
		Machines: apiserver.Recording().Machines(), Targets: target.Single{}, Clock: clocktesting.NewFakeClock(at),
	})
	if err != nil {
		panic(err)
	}
	return t
}

// created creates the token of the machine.
func created(t *testing.T, cluster *apiserver.Server, by *Tokens) (token string, expiry time.Time) {
	t.Helper()
	token, expiry, err := by.Create(t.Context(), target.New(cluster.Core()), machine, life)
	if err != nil {
		t.Fatal(err)
	}
	return token, expiry
}

// deleted deletes the token of the machine.
func deleted(t *testing.T, cluster *apiserver.Server, by *Tokens) {
	t.Helper()
	if err := by.Delete(t.Context(), cluster.Core(), machine.UID); err != nil {
		t.Fatal(err)
	}
}

func tokens(cluster *apiserver.Server) (names []string) {
	for _, s := range cluster.List("secrets") {
		names = append(names, s.GetName())
	}
	return names
}

func TestAMachineHasOneToken(t *testing.T) {
	cluster, process := apiserver.Recording(), newTokens(now)
	first, _ := created(t, cluster, process)
	if !regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`).MatchString(first) {
		t.Errorf("the token is %q", first)
	}
	// Another process, after the first was killed.
	if second, _ := created(t, cluster, newTokens(now)); second != first || len(tokens(cluster)) != 1 {
		t.Errorf("a second token: %s and %s, Secrets %v", first, second, tokens(cluster))
	}
	secret := apiserver.Read[corev1.Secret](cluster, "secrets", tokenNamespace, tokens(cluster)[0])
	if got := string(secret.Data["expiration"]); got != "2026-01-02T03:24:05Z" {
		t.Errorf("it expires at %s", got)
	}
	if got := secret.Annotations[v1alpha1.AnnotationTokenOf]; got != "n/m" {
		t.Errorf("it is for machine %q", got)
	}
	if usages := maps.Clone(secret.Data); string(usages["usage-bootstrap-authentication"]) != "true" ||
		usages["usage-bootstrap-signing"] != nil || usages["auth-extra-groups"] != nil {
		t.Errorf("it can be used for more than to authenticate: %q", usages)
	}
	for range 2 { // once more is no error
		deleted(t, cluster, process)
	}
	if left := tokens(cluster); len(left) != 0 || process.Len() != 0 {
		t.Errorf("left: %v, and %d in memory", left, process.Len())
	}
}

func TestATokenThatRunsOutIsProlonged(t *testing.T) {
	cluster := apiserver.Recording()
	first, _ := created(t, cluster, newTokens(now))
	token, expiry := created(t, cluster, newTokens(now.Add(19*time.Minute))) // 20 minutes is all it has
	secret := apiserver.Read[corev1.Secret](cluster, "secrets", tokenNamespace, tokens(cluster)[0])
	if got := string(secret.Data["expiration"]); got != "2026-01-02T03:43:05Z" || token != first ||
		!expiry.Equal(expiryOf(target.New(nil), secret)) {
		t.Errorf("it expires at %s, reported as %s, and the token is %s, was %s", got, expiry, token, first)
	}
}

// A token of an earlier version of the fleet may be valid for a hundred years.
func TestATokenThatLastsTooLongIsShortened(t *testing.T) {
	cluster, process := apiserver.Recording(), newTokens(now)
	created := process.secretOf(target.New(nil), machine, tokenID(machine.UID, 0), life)
	created.Data["expiration"] = []byte("2126-01-02T03:04:05Z")
	apiserver.Add(cluster, created)
	expiry, found, err := process.Prolong(t.Context(), target.New(cluster.Core()), machine.UID, life)
	if want := now.Add(life); err != nil || !found || !expiry.Equal(want) || !process.Expiry(machine.UID).Equal(want) {
		t.Errorf("found %t, it expires at %s, want %s; error %v", found, expiry, want, err)
	}
}

// A token that another process has deleted is not prolonged, and not remembered any more.
func TestProlongingReportsThatTheTokenIsGone(t *testing.T) {
	cluster, process := apiserver.Recording(), newTokens(now)
	created(t, cluster, process)
	deleted(t, cluster, newTokens(now))
	process.cfg.Clock = clocktesting.NewFakeClock(now.Add(19 * time.Minute))
	expiry, found, err := process.Prolong(t.Context(), target.New(cluster.Core()), machine.UID, life)
	if err != nil || found || !expiry.IsZero() || process.Len() != 0 {
		t.Errorf("found %t, it expires at %s, %d in memory; error %v", found, expiry, process.Len(), err)
	}
}

// The Secrets of kube-system may neither be read nor changed by the fleet.
func TestTokensAreNotRead(t *testing.T) {
	cluster, process := apiserver.Recording(), newTokens(now)
	created(t, cluster, process)
	created(t, cluster, process)
	deleted(t, cluster, process)
	created(t, cluster, process)
	process = newTokens(now) // another process
	if _, found, err := process.Prolong(t.Context(), target.New(cluster.Core()), machine.UID, life); err != nil || !found {
		t.Fatalf("found %t, error %v", found, err)
	}
	created(t, cluster, process)
	deleted(t, cluster, process)
	if all := len(cluster.Log()); all != cluster.Count("create *", "delete *") {
		t.Errorf("requests %v", cluster.Log())
	}
}

// The token is deleted and cannot be created again at first: the VM may have it already, so it is
// not lost.
func TestProlongingIsRepeatedWhenTheCreateFails(t *testing.T) {
	cluster, process := apiserver.Recording(), newTokens(now)
	first, _ := created(t, cluster, process)
	process.cfg.Clock = clocktesting.NewFakeClock(now.Add(19 * time.Minute))
	cluster.Refuse("create secrets", apierrors.NewServiceUnavailable("away"))
	if _, _, err := process.Prolong(t.Context(), target.New(cluster.Core()), machine.UID, life); !apierrors.IsServiceUnavailable(err) {
		t.Fatalf("error %v", err)
	}
	if expiry := process.Expiry(machine.UID); !expiry.IsZero() {
		t.Errorf("a token that does not exist expires at %s", expiry)
	}
	cluster.Fault(nil)
	expiry, found, err := process.Prolong(t.Context(), target.New(cluster.Core()), machine.UID, life)
	if want := now.Add(19*time.Minute + life); err != nil || !found || !expiry.Equal(want) {
		t.Errorf("found %t, it expires at %s, want %s; error %v", found, expiry, want, err)
	}
	if second, _ := created(t, cluster, newTokens(now.Add(19*time.Minute))); second != first {
		t.Errorf("the token is %s, was %s", second, first)
	}
}

// A Secret without data may have the name of the token.
func TestEmptySecretOfATokenIsExpired(t *testing.T) {
	cluster, process := apiserver.Recording(), newTokens(now)
	empty := process.secretOf(target.New(nil), machine, tokenID(machine.UID, 0), life)
	empty.Data = nil
	apiserver.Add(cluster, empty)
	if _, found, err := process.Prolong(t.Context(), target.New(cluster.Core()), machine.UID, life); err != nil || !found {
		t.Errorf("found %t, error %v", found, err)
	}
}

func TestSigningTokensAreRequested(t *testing.T) {
	process := newTokens(now)
	process.cfg.Signing = true
	if got := process.secretOf(target.New(nil), machine, "abcdef", life).Data["usage-bootstrap-signing"]; string(got) != "true" {
		t.Errorf("signing: %q", got)
	}
}

func TestTokenOfAnotherMachineIsNotChanged(t *testing.T) {
	cluster, process := apiserver.Recording(), newTokens(now)
	foreign := process.secretOf(target.New(nil), machine, tokenID(machine.UID, 0), life)
	foreign.Annotations[v1alpha1.AnnotationMachineUID] = "other"
	apiserver.Add(cluster, foreign)
	created(t, cluster, process)
	if len(tokens(cluster)) != 2 {
		t.Errorf("Secrets %v, want the other's and ours", tokens(cluster))
	}
	deleted(t, cluster, process)
	if left := tokens(cluster); len(left) != 1 || left[0] != foreign.Name {
		t.Errorf("left: %v, want %s", left, foreign.Name)
	}
}

// The token of the other machine, which had our first ID, is deleted by the time that another
// process looks for ours.
func TestATokenIsFoundBehindAFreeID(t *testing.T) {
	for _, isCreatedAgain := range []bool{false, true} {
		cluster, process := apiserver.Recording(), newTokens(now)
		apiserver.Add(cluster, process.secretOf(target.New(nil), machine, tokenID(machine.UID, 1), life))
		if isCreatedAgain {
			created(t, cluster, process)
			process = newTokens(now) // another process once more
		}
		deleted(t, cluster, process)
		if left := tokens(cluster); len(left) != 0 {
			t.Errorf("created again %t: left %v", isCreatedAgain, left)
		}
	}
}

func TestTokenIDsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for try := range 1000 {
		seen[tokenID("u", try)] = true
	}
	if len(seen) < 1000 {
		t.Errorf("%d of 1000 IDs differ", len(seen))
	}
}

func TestUserData(t *testing.T) {
	values := map[string]string{
		v1alpha1.PlaceholderBootstrapToken: "a.b", v1alpha1.PlaceholderMachineName: "m", v1alpha1.PlaceholderMachineConfig: "a+/=",
		v1alpha1.PlaceholderMachineConfigName: "",
	}
	for _, tc := range []struct{ name, given, want string }{
		{"plain", "--token <<BOOTSTRAP_TOKEN>> --name <<MACHINE_NAME>>", "--token a.b --name m"},
		{"twice", "<<MACHINE_NAME>><<MACHINE_NAME>>", "mm"},
		{"URL-encoded", "t=%3C%3CBOOTSTRAP_TOKEN%3E%3E&n=%3C%3CMACHINE_NAME%3E%3E", "t=a.b&n=m"},
		{"none", "#!/bin/sh", "#!/bin/sh"},
		{"base64", "<<MACHINE_CONFIG>> %3C%3CMACHINE_CONFIG%3E%3E", "a+/= a%2B%2F%3D"},
		{"without a value", "<<MACHINE_CONFIG_NAME>>", "<<MACHINE_CONFIG_NAME>>"},
	} {
		if got := string(FillUserData([]byte(tc.given), values)); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
