//go:build e2e

package bridged

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
)

const (
	// labProgram is the program in the folder of the lab's binaries, which hack/test.sh builds.
	labProgram = "azure-bridge"
	labPool    = "pool"
	// checkEvery is how often a test looks.
	checkEvery = 500 * time.Millisecond
	// labTime bounds the test but for the end of its lab, and downTime that.
	labTime, downTime = 6 * time.Minute, 2 * time.Minute
)

// labDeployment is a MachineDeployment of MCM for Azure, with its class and Secret.
const labDeployment = `
apiVersion: v1
kind: Namespace
metadata: {name: ` + namespace + `}
---
apiVersion: v1
kind: Secret
metadata: {name: class, namespace: ` + namespace + `}
stringData: {clientID: "` + clientID + `", clientSecret: "` + clientSecret + `",
  subscriptionID: "` + subscription + `", tenantID: tenant, userData: "` + userData + `"}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {name: class, namespace: ` + namespace + `}
provider: ` + provider + `
secretRef: {name: class, namespace: ` + namespace + `}
providerSpec: ` + "%s" + `
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: ` + labPool + `, namespace: ` + namespace + `}
spec:
  replicas: 3
  selector: {matchLabels: {name: ` + labPool + `}}
  template:
    metadata: {labels: {name: ` + labPool + `}}
    spec: {class: {kind: MachineClass, name: class}}
`

// TestInTheLab: a fleet creates the machines of a MachineDeployment with MCM's driver for Azure as
// a side-car, and deletes them. Each machine gets one VM, also those whose create is under way when
// the side-car is killed, and nothing is left.
func TestInTheLab(t *testing.T) {
	cloud := newCloud(azuretest.Config{CreateTime: 3 * time.Second, DeleteTime: 2 * time.Second, PollAfter: time.Second})
	l := newLab(t, cloud)
	var class map[string]any
	l.must(json.Unmarshal([]byte(spec), &class))
	oneLine, err := json.Marshal(class)
	l.must(err)
	l.kubectl(fmt.Sprintf(labDeployment, oneLine), "apply", "--filename=-")
	l.eventually("3 machines are available", func() error { return l.available(3) })

	const more = 6
	l.kubectl("", "--namespace="+namespace, "scale", "machinedeployments.machine.sapcloud.io/"+labPool, fmt.Sprint("--replicas=", more))
	l.eventually("more VMs are created", func() error {
		if created := cloud.Stats().VMs; created == 3 {
			return fmt.Errorf("%d VMs were created", created)
		}
		return nil
	})
	l.must(syscall.Kill(l.pid("driver-"+provider), syscall.SIGKILL))
	l.eventually("all machines are available", func() error { return l.available(more) })
	if created := cloud.Stats().VMs; created != more {
		t.Errorf("%d VMs were created for %d machines", created, more)
	}
	const parts = 5 // VM, network interface, OS disk and two data disks
	if all := cloud.All(); len(all) != more*parts {
		t.Errorf("the cloud has %d resources, want %d", len(all), more*parts)
	}

	l.kubectl("", "--namespace="+namespace, "delete", "--wait=false", "machinedeployments.machine.sapcloud.io/"+labPool)
	l.eventually("all is deleted", func() error {
		if machines := l.machines(); len(machines)+len(cloud.All()) > 0 {
			return fmt.Errorf("there are %d machines and %d resources of the cloud", len(machines), len(cloud.All()))
		}
		return nil
	})
	if created := cloud.Stats().VMs; created != more {
		t.Errorf("%d VMs were created for %d machines", created, more)
	}
}

// lab is a lab whose fleet has no target cluster, and the bridged driver as side-car.
type lab struct {
	*testing.T

	cloud    *azuretest.Cloud
	ctx      context.Context //nolint:containedctx // of the test
	bin, dir string
}

// newLab starts a lab, and stops it when the test ends. Its folder stays when the test has failed.
func newLab(t *testing.T, cloud *azuretest.Cloud) *lab {
	t.Helper()
	proxy, certificate := serve(t, &brokenWay{cloud: cloud})
	l := &lab{T: t, cloud: cloud, bin: os.Getenv("BIN")}
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeout(t.Context(), labTime)
	t.Cleanup(cancel)
	if l.bin == "" {
		bin, err := filepath.Abs("../../../bin")
		l.must(err)
		l.bin = bin
	}
	dir, err := os.MkdirTemp("", "lab-") //nolint:usetesting // it stays when the test fails, for its logs
	l.must(err)
	l.dir = dir
	t.Cleanup(func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), downTime)
		defer cancel()
		if _, err := l.command(down, "lab", "down", "--dir", dir); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the lab's logs are in %s/logs", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	// All processes of the lab get this environment; the side-car is the only one that connects to
	// names.
	for _, variable := range environment(proxy, certificate) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	_, err = l.command(l.ctx, "lab", "up", "--dir", dir, "--bin", l.bin, "--clusters=1", "--replicas=1",
		"--fleet-flags=--target-kubeconfig=none", "--drivers="+provider+"="+labProgram)
	l.must(err)
	return l
}

// command runs one of the lab's programs, and returns what it prints.
func (l *lab) command(ctx context.Context, program string, args ...string) (string, error) {
	return l.feed(ctx, "", program, args...)
}

func (l *lab) feed(ctx context.Context, input, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(l.bin, program), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(l.dir, "admin.kubeconfig"))
	command.Stdin = strings.NewReader(input)
	var printed, failures bytes.Buffer
	command.Stdout, command.Stderr = &printed, &failures
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", program, strings.Join(args, " "), err, printed.Bytes(), failures.Bytes())
	}
	return printed.String(), nil
}

func (l *lab) kubectl(input string, args ...string) string {
	l.Helper()
	printed, err := l.feed(l.ctx, input, "kubectl", args...)
	l.must(err)
	return printed
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) eventually(what string, check func() error) {
	l.Helper()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			l.Fatalf("wait until %s: %v", what, err)
		}
	}
}

func (l *lab) machines() []v1alpha1.Machine {
	l.Helper()
	var list v1alpha1.MachineList
	l.must(json.Unmarshal([]byte(l.kubectl("", "--namespace="+namespace, "get", "machines.machine.sapcloud.io", "--output=json")), &list))
	return list.Items
}

// available returns an error unless there are n machines, all of them available, and each has one
// VM, with its UID.
func (l *lab) available(n int) error {
	l.Helper()
	var wrong []error
	machines, uids := l.machines(), map[string]bool{}
	for _, m := range machines {
		uids[string(m.UID)] = true
		if m.Status.CurrentStatus.Phase != v1alpha1.MachineAvailable || m.Spec.ProviderID != providerID(m.Name) {
			wrong = append(wrong, fmt.Errorf("%s has the provider ID %q and is %s: %s",
				m.Name, m.Spec.ProviderID, m.Status.CurrentStatus.Phase, m.Status.LastOperation.Description))
		}
	}
	vms := l.cloud.VMs()
	for _, vm := range vms {
		delete(uids, vm.Tags[tagUID])
	}
	if len(machines) != n || len(vms) != n || len(uids) > 0 {
		wrong = append(wrong,
			fmt.Errorf("there are %d machines and %d VMs, and no VM for %q", len(machines), len(vms), slices.Collect(maps.Keys(uids))))
	}
	return errors.Join(wrong...)
}

// pid returns the number of a process of the lab.
func (l *lab) pid(name string) int {
	l.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "pids.json"))
	l.must(err)
	var pids map[string]int
	l.must(json.Unmarshal(text, &pids))
	if pids[name] == 0 {
		l.Fatalf("the lab has no process %s", name)
	}
	return pids[name]
}
