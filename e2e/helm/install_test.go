//go:build e2e

package helm

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// TestInstall installs the fleet, scales it, uninstalls it, and has a new installation take its
// machines over.
func TestInstall(t *testing.T) {
	b := newBed(t)
	b.follow("Install")
	b.prepare()
	b.deploy("pool", 20, 1)
	b.step("three replicas serve 20 machines", func() {
		b.served()
		b.held(0, 1, 2)
	})
	b.step("kubectl mcf shows the page of a pod through a forwarded port", b.opensPage)
	before := b.identities("pool")
	b.follow("Scale")
	b.step("five replicas hold the slots", func() { b.held(0, 1, 2, 3, 4) })
	b.step("scaled down to two", func() {
		b.scale(2)
		b.held(0, 1)
	})
	b.reinstall("pool", 22)
	b.unchanged("pool", before)
	b.step("everything is deleted", b.end)
}

// opensPage has kubectl mcf dashboard forward the port of a pod, and reads the page and the first
// state of its stream, as a browser does. For a user without the role the error has the right that
// is missing.
func (b *bed) opensPage() {
	b.Helper()
	token := func(user string) string { return strings.TrimSpace(b.shell("kubectl create token " + user)) }
	b.shell("kubectl create serviceaccount viewer; kubectl create serviceaccount other; kubectl create clusterrolebinding viewer " +
		"--clusterrole=machine-controller-fleet:machine-controller-fleet:fleet:page-reader --serviceaccount=default:viewer")
	refused := b.shell("kubectl mcf dashboard --no-browser --token " + token("other") + " 2>&1 || echo exit code $?")
	if !strings.Contains(refused, "missing the right to get /page/") || !strings.HasSuffix(refused, "exit code 1\n") {
		b.Errorf("without the role: %s", refused)
	}
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	dashboard := exec.CommandContext(ctx, filepath.Join(b.bin, "kubectl-mcf"), "dashboard", "--no-browser", "--token", token("viewer"))
	dashboard.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(b.lab.Dir, "admin.kubeconfig"))
	dashboard.Cancel = func() error { return dashboard.Process.Signal(os.Interrupt) }
	output, err := dashboard.StdoutPipe()
	b.must(err)
	b.must(dashboard.Start())
	defer func() {
		cancel()
		_ = dashboard.Wait()
	}()
	lines := bufio.NewScanner(output)
	address := ""
	for address == "" && lines.Scan() {
		if text := strings.TrimSpace(lines.Text()); strings.HasPrefix(text, "http://") {
			address = text
		}
	}
	jar, err := cookiejar.New(nil)
	b.must(err)
	browser := &http.Client{Jar: jar}
	read := func(address, until string) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		b.must(err)
		answer, err := browser.Do(request)
		b.must(err)
		defer answer.Body.Close()
		content := bufio.NewScanner(answer.Body)
		content.Buffer(nil, 1<<20)
		for content.Scan() {
			if strings.Contains(content.Text(), until) {
				return
			}
		}
		b.Errorf("%s answered %s, and nothing with %q: %v", address, answer.Status, until, content.Err())
	}
	read(address, "app.js")
	page, _, _ := strings.Cut(address, "?")
	read(page+"events", `"pool-`)
}

// reinstall uninstalls the fleet, scales a MachineDeployment up, and installs the fleet again.
// While there is no fleet, nothing changes.
func (b *bed) reinstall(pool string, machines int) {
	b.Helper()
	before := b.identities(pool)
	b.follow("Uninstall")
	b.scaleUp(pool, machines)
	calls := b.changes()
	b.step("without a fleet the API server serves the machines", func() { b.unchanged(pool, before) })
	if now := b.changes(); now != calls {
		b.Errorf("%d calls have changed the cloud while there was no fleet", now-calls)
	}
	b.follow("Install")
	b.step(fmt.Sprintf("the new installation serves %s, with %d machines now", pool, machines), b.served)
	b.step("its three replicas hold the slots", func() { b.held(0, 1, 2) })
}

// changes counts the calls that have changed the cloud.
func (b *bed) changes() (n int) {
	b.Helper()
	calls, err := b.lab.Cloud.Calls()
	b.must(err)
	for _, c := range calls {
		if c.Changed {
			n++
		}
	}
	return n
}

func strategy(surge int32) v1alpha1.MachineDeploymentStrategy {
	return v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
			MaxSurge: new(intstr.FromInt32(surge)), MaxUnavailable: new(intstr.FromInt32(0)),
		}},
	}
}

// loseNode ends the VM below a replica of the fleet, at once.
func (b *bed) loseNode(replica string) (node string) {
	b.Helper()
	pod, err := b.lab.Control.CoreV1().Pods(harness.FleetNamespace).Get(b.ctx, replica, metav1.GetOptions{})
	b.must(err)
	vms, err := b.lab.Cloud.VMs(b.ctx, "")
	b.must(err)
	for _, vm := range vms {
		if vm.Name == pod.Spec.NodeName {
			b.must(b.lab.Cloud.Act(b.ctx, vm.ID, cloudapi.ActionDie))
			return vm.Name
		}
	}
	b.Fatalf("no VM is Node %q", pod.Spec.NodeName)
	return ""
}

// replaceNode deletes the Node of a lost VM, as a cloud's controller manager does, and waits until
// its pod runs on another one.
func (b *bed) replaceNode(node, replica string) {
	b.Helper()
	b.must(b.lab.Control.CoreV1().Nodes().Delete(b.ctx, node, metav1.DeleteOptions{}))
	b.eventually(replica+" runs on another Node", func(ctx context.Context) error {
		pod, err := b.lab.Control.CoreV1().Pods(harness.FleetNamespace).Get(ctx, replica, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" && pod.Spec.NodeName != node && pod.DeletionTimestamp == nil {
				return nil
			}
		}
		return fmt.Errorf("it is %s on Node %q", pod.Status.Phase, pod.Spec.NodeName)
	})
}
