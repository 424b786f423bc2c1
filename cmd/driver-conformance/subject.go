package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
)

// subject is the driver under test, with its cloud.
type subject struct {
	options

	client *plugin.Client
	class  v1alpha1.MachineClass
	secret corev1.Secret
}

// test is the suite.
func (s *subject) test(t *testing.T) {
	t.Cleanup(func() {
		if err := s.client.Close(); err != nil {
			t.Error(err)
		}
	})
	drivertest.Run(t, s.env)
}

// env returns an Env whose machines have their own names, and deletes their VMs when the case has
// ended.
func (s *subject) env(t *testing.T) drivertest.Env {
	t.Helper()
	run := strings.ToLower(rand.Text()[:8]) + "-"
	class := s.class.DeepCopy()
	class.Namespace = "conformance-" + strings.TrimSuffix(run, "-")
	if class.Name == "" {
		class.Name = "class"
	}
	env := drivertest.Env{
		Driver: s.client, Class: class, Secret: s.secret.Data, UserData: s.secret.Data[v1alpha1.SecretKeyUserData],
		VMs: s.listed, MoreThanAPage: s.page, CallTimeout: s.callTimeout, Run: run,
	}
	if s.end != "" {
		env.EndVM = func(t *testing.T, providerID string) {
			t.Helper()
			s.shell(t, s.end, "PROVIDER_ID="+providerID)
		}
	}
	t.Cleanup(func() {
		drivertest.Clean(t, env)
	})
	return env
}

// listed returns the VMs that the cloud has, as the command prints them.
func (s *subject) listed(t *testing.T) (vms []drivertest.VM) {
	t.Helper()
	for line := range strings.Lines(s.shell(t, s.vms)) {
		words := strings.Fields(line)
		switch len(words) {
		case 0:
		case 1:
			vms = append(vms, drivertest.VM{ProviderID: words[0]}) // of another owner
		case 2:
			vms = append(vms, drivertest.VM{ProviderID: words[0], MachineUID: types.UID(words[1])})
		default:
			t.Fatalf("--vms: expected lines of a provider ID and the UID of a Machine, got %q", line)
		}
	}
	return vms
}

// shell runs a command and returns what it prints.
func (s *subject) shell(t *testing.T, text string, environment ...string) string {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", text) //nolint:gosec // it is the user's own
	command.Env, command.Stderr = append(os.Environ(), environment...), os.Stderr
	printed, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(printed)
}
