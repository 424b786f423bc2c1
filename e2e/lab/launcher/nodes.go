package launcher

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/manifests"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const (
	nodePrefix = "node-"
	// mostNodes is a guess at what the memory of a computer allows.
	mostNodes = 20
	// imagesDir has the programs of images that the Nodes can run.
	imagesDir = "images"
	// tokenLife is how long the Nodes may take to join. Kubernetes deletes the token later.
	tokenLife = time.Hour
)

// nodeZones are zones of cloudsim's default region, among which the Nodes are spread.
var nodeZones = []string{"sim-1a", "sim-1b", "sim-1c"}

// bootNodes makes the Nodes of the control cluster that belong to no machine, with real kubelets,
// and waits until they are Ready. The fleet can run there as pods.
func (l *Launcher) bootNodes(ctx context.Context) error {
	if l.options.Nodes == 0 {
		return nil
	}
	client, err := l.control.Admin()
	if err != nil {
		return err
	}
	defer client.Close()
	id, secret := newToken()
	if err := client.Apply(ctx, manifests.Nodes(id, secret, l.clock.Now().Add(tokenLife))); err != nil {
		return fmt.Errorf("a bootstrap token for the Nodes: %w", err)
	}
	l.mu.Lock()
	cloud := l.endpoints[cloudsimName]
	l.mu.Unlock()
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range l.options.Nodes {
		request := cloudapi.CreateInstanceRequest{
			Name: nodePrefix + strconv.Itoa(i), ClientToken: nodePrefix + strconv.Itoa(i), Zone: nodeZones[i%len(nodeZones)],
			Boot: cloudapi.BootKubelet, UserData: []byte("join with the token " + id + "." + secret),
		}
		group.Go(func() error {
			if err := createVM(groupCtx, cloud, request); err != nil {
				return err
			}
			return l.await(groupCtx, request.Name, nil, func(ctx context.Context) error { return nodeReady(ctx, client, request.Name) })
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("the Nodes of the lab: %w; the consoles of their VMs are below %s", err, l.options.folder().path(cloudsimName))
	}
	if err := client.Apply(ctx, nodeLabels(l.options.Nodes)); err != nil {
		return fmt.Errorf("the labels of the Nodes: %w", err)
	}
	l.say(fmt.Sprintf("%d Nodes are ready", l.options.Nodes))
	return l.options.folder().writeFile(valuesFile, chartValues(cloud))
}

// controlPlane is the label of the Nodes that belong to no machine, as in clusters that have such
// Nodes.
const controlPlane = "node-role.kubernetes.io/control-plane"

func nodeLabels(nodes int) []byte {
	var manifests []string
	for i := range nodes {
		manifests = append(manifests,
			fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s%d, labels: {%s: \"\"}}}\n", nodePrefix, i, controlPlane))
	}
	return []byte(strings.Join(manifests, "---\n"))
}

// chartValues are the values that the Helm chart needs in a lab: pods share the network, a pod on a
// simulated Node would be no process, and a driver calls the lab's cloud.
func chartValues(cloud string) []byte {
	return fmt.Appendf(nil, "hostNetwork: true\nnodeSelector: {%s: \"\"}\ndrivers:\n- provider: %s\n  image: %s\n  args: [--endpoints=%s]\n",
		controlPlane, simulatedProvider, driverBinary, cloud)
}

// newToken draws a bootstrap token: 6 and 16 characters of a to z and 0 to 9.
func newToken() (id, secret string) {
	random := make([]byte, 15)
	_, _ = rand.Read(random) // It never fails.
	text := strings.ToLower(base32.StdEncoding.EncodeToString(random))
	return text[:6], text[6:22]
}

func createVM(ctx context.Context, cloud string, request cloudapi.CreateInstanceRequest) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding the request for VM %s: %w", request.Name, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cloud+cloudapi.PathInstances, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("VM %s: %w", request.Name, err)
	}
	req.Header.Set("User-Agent", launcherName)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("VM %s: %w", request.Name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("VM %s: %s: %s", request.Name, resp.Status, answer)
	}
	return nil
}

func nodeReady(ctx context.Context, client *controlplane.Client, name string) error {
	body, err := client.Get(ctx, "/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal(body, &node); err != nil {
		return fmt.Errorf("reading Node %s: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		}
	}
	return fmt.Errorf("machine %s: its Node is not Ready", name)
}

// createImages creates the folder of images, with the programs of the fleet and of the driver for
// every tag.
func (l *Launcher) createImages() error {
	dir := l.options.folder().path(imagesDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the folder of images: %w", err)
	}
	if l.options.Nodes == 0 {
		return nil // Its pods are run by machines, if at all, and need no image of the fleet.
	}
	var errs []error
	for _, program := range []string{fleetBinary, driverBinary} {
		errs = append(errs, copyProgram(l.options.binary(program), filepath.Join(dir, program)))
	}
	return errors.Join(errs...)
}

func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying a program: %w", err)
	}
	defer in.Close()
	// Containers run it as any user.
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("copying a program: %w", err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return fmt.Errorf("copying a program: %w", err)
	}
	return nil
}
