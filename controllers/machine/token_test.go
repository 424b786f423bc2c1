package machine

import (
	"context"
	"maps"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// tokenBench is a controller with nothing but a target cluster, and a pass over the machine of that UID.
func tokenBench(t *testing.T, cluster *fake.Clientset, uid types.UID) (*Controller, *pass) {
	t.Helper()
	c := &Controller{drains: newDrains(), nodes: patch.NewLatest[*corev1.Node](), nodeWriteLimit: newNodeWriteLimit(), memory: newMemory[types.UID, remembered](), claims: newMemory[string, claim](), cfg: Config{Clock: clocktesting.NewFakeClock(now), Limits: lifecycle.Limits{CreationTimeout: 20 * time.Minute}}}
	p := &pass{cluster: &target.Cluster{Client: cluster}}
	p.world.Machine = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: uid}}
	return c, p
}

func tokens(t *testing.T, cluster *fake.Clientset) []string {
	t.Helper()
	list, err := cluster.CoreV1().Secrets(tokenNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	return names
}

func TestAMachineHasOneToken(t *testing.T) {
	cluster := fake.NewClientset()
	c, p := tokenBench(t, cluster, "u")
	if err := c.makeToken(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`).MatchString(p.token) {
		t.Errorf("the token is %q", p.token)
	}
	first := p.token
	if err := c.makeToken(t.Context(), p); err != nil { // another process, after the first was killed
		t.Fatal(err)
	}
	if p.token != first || len(tokens(t, cluster)) != 1 {
		t.Errorf("a second token: %s and %s, Secrets %v", first, p.token, tokens(t, cluster))
	}
	secret, err := cluster.CoreV1().Secrets(tokenNamespace).Get(t.Context(), tokens(t, cluster)[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(secret.Data["expiration"]); got != "2026-01-02T03:24:05Z" {
		t.Errorf("it expires at %s", got)
	}
	if got := secret.Annotations[v1alpha1.AnnotationTokenOf]; got != "n/m" {
		t.Errorf("it is for machine %q", got)
	}
	if usages := maps.Clone(secret.Data); string(usages["usage-bootstrap-authentication"]) != "true" || usages["usage-bootstrap-signing"] != nil || usages["auth-extra-groups"] != nil {
		t.Errorf("it can be used for more than to authenticate: %q", usages)
	}
	for range 2 { // once more is no error
		if err := c.dropToken(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if left := tokens(t, cluster); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestATokenThatRunsOutIsProlonged(t *testing.T) {
	cluster := fake.NewClientset()
	c, p := tokenBench(t, cluster, "u")
	if err := c.makeToken(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	first := p.token
	c.cfg.Clock = clocktesting.NewFakeClock(now.Add(19 * time.Minute)) // 20 minutes is all it has
	if err := c.makeToken(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	secret, err := cluster.CoreV1().Secrets(tokenNamespace).Get(t.Context(), tokens(t, cluster)[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(secret.Data["expiration"]); got != "2026-01-02T03:43:05Z" || p.token != first {
		t.Errorf("it expires at %s, and the token is %s, was %s", got, p.token, first)
	}
}

// A token of an earlier version of the fleet may have been made for a hundred years.
func TestATokenThatLastsTooLongIsShortened(t *testing.T) {
	cluster := fake.NewClientset()
	c, p := tokenBench(t, cluster, "u")
	made := c.tokenSecret(p.world.Machine, tokenID("u", 0))
	made.Data["expiration"] = []byte("2126-01-02T03:04:05Z")
	if _, err := cluster.CoreV1().Secrets(tokenNamespace).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.prolongToken(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if want := now.Add(20 * time.Minute); !p.world.TokenExpiry.Equal(want) || p.world.Token != lifecycle.TokenPresent {
		t.Errorf("it expires at %s, want %s", p.world.TokenExpiry, want)
	}
}

// The Secrets of kube-system may not be read by the fleet, only bootstrap tokens patched.
func TestTokensAreNotRead(t *testing.T) {
	cluster := fake.NewClientset()
	c, p := tokenBench(t, cluster, "u")
	for _, do := range []func(context.Context, *pass) error{c.makeToken, c.makeToken, c.dropToken, c.makeToken} {
		if err := do(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	c, p = tokenBench(t, cluster, "u") // another process
	for _, do := range []func(context.Context, *pass) error{c.prolongToken, c.makeToken, c.dropToken} {
		if err := do(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for _, action := range cluster.Actions() {
		if verb := action.GetVerb(); verb != "create" && verb != "patch" && verb != "delete" {
			t.Errorf("%s of a Secret", verb)
		}
	}
}

func TestSigningTokensAreRequested(t *testing.T) {
	c, p := tokenBench(t, fake.NewClientset(), "u")
	c.cfg.BootstrapTokenSigning = true
	if got := c.tokenSecret(p.world.Machine, "abcdef").Data["usage-bootstrap-signing"]; string(got) != "true" {
		t.Errorf("signing: %q", got)
	}
}

func TestTokenOfAnotherMachineIsNotChanged(t *testing.T) {
	cluster := fake.NewClientset()
	c, p := tokenBench(t, cluster, "u")
	foreign := c.tokenSecret(p.world.Machine, tokenID("u", 0))
	foreign.Annotations[v1alpha1.AnnotationMachineUID] = "other"
	if _, err := cluster.CoreV1().Secrets(tokenNamespace).Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.makeToken(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if len(tokens(t, cluster)) != 2 {
		t.Errorf("Secrets %v, want the other's and ours", tokens(t, cluster))
	}
	if err := c.dropToken(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if left := tokens(t, cluster); len(left) != 1 || left[0] != foreign.Name {
		t.Errorf("left: %v, want %s", left, foreign.Name)
	}
}

// The token of the other machine, which had our first ID, is deleted by the time that another process looks for ours.
func TestATokenIsFoundBehindAFreeID(t *testing.T) {
	for _, isMadeAnew := range []bool{false, true} {
		cluster := fake.NewClientset()
		c, p := tokenBench(t, cluster, "u")
		second := c.tokenSecret(p.world.Machine, tokenID("u", 1))
		if _, err := cluster.CoreV1().Secrets(tokenNamespace).Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if isMadeAnew {
			if err := c.makeToken(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			c, p = tokenBench(t, cluster, "u") // another process once more
		}
		if err := c.dropToken(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if left := tokens(t, cluster); len(left) != 0 {
			t.Errorf("made anew %t: left %v", isMadeAnew, left)
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
	for _, tc := range []struct{ name, given, want string }{
		{"plain", "--token <<BOOTSTRAP_TOKEN>> --name <<MACHINE_NAME>>", "--token a.b --name m"},
		{"twice", "<<MACHINE_NAME>><<MACHINE_NAME>>", "mm"},
		{"URL-encoded", "t=%3C%3CBOOTSTRAP_TOKEN%3E%3E&n=%3C%3CMACHINE_NAME%3E%3E", "t=a.b&n=m"},
		{"none", "#!/bin/sh", "#!/bin/sh"},
	} {
		if got := string(fillUserData([]byte(tc.given), "a.b", "m")); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
