//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/planted"
)

// plantedUserData and plantedToken are in the Secret of the class.
const (
	plantedUserData = "planted+user/data=of-the-lab-4e1b"
	plantedToken    = "planted+credentials/of=the-lab-77d0"
	// plantedAzure is the secret of the application at Azure, and wrongAzure one that Azure rejects, and shows in its answer.
	plantedAzure = "planted+azure/secret=of-the-lab-9c2d"
	wrongAzure   = "planted+azure/wrong=of-the-lab-51f7"
)

// TestPlantedSecretsAreShownNowhere: machines live and die in a lab whose replicas log as much as they can, one of them at Azure, and one
// fails there. No log, page, metric, span, Event or object but the Secrets has user data, credentials, a bootstrap token or the token of a replica.
func TestPlantedSecretsAreShownNowhere(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "planted", func(o *harness.Options) {
		o.Clusters, o.Replicas, o.Tracing, o.FleetFlags = 2, 2, true, "--v=10 --logging-format=json --profiling"
		o.Clouds, o.Drivers = harness.AzureClouds+" --client-secret="+plantedAzure, harness.AzureDrivers
	})
	s := &plantedSpace{space: newSpace(t, lab, "planted", ""), secrets: planted.Secrets{"user data": plantedUserData, "credentials": plantedToken, "secret of Azure": plantedAzure, "wrong secret of Azure": wrongAzure}}
	s.addTokensOfReplicas()
	s.createSecret("planted", map[string]string{v1alpha1.SecretKeyUserData: harness.UserData + "\n# " + plantedUserData + "\n", "token": plantedToken})
	s.createClass("planted")
	s.createMachine("planted", func(m *v1alpha1.Machine) { m.Spec.Class.Name = "planted" })
	s.createAtAzure("planted-azure", plantedAzure)
	s.createAtAzure("rejected-azure", wrongAzure)
	s.runs("planted")
	s.runs("planted-azure")
	s.machineFails("rejected-azure", driver.Unauthenticated, "AADSTS")
	s.showPages()
	s.showObjects()
	s.showSpans("driver.CreateMachine", "reconcile machine", "azure.virtual_machine_create")
	for _, name := range []string{"planted", "planted-azure", "rejected-azure"} {
		s.remove("machines", name)
	}
	// Without credentials nothing of it can be deleted, and there is nothing.
	s.patch("machines", "rejected-azure", `{"metadata":{"finalizers":null}}`)
	s.gone()
	s.showPages()
	s.showObjects()
	s.showLogs()
	if len(s.secrets) < 6 {
		t.Errorf("want at least the four that are planted, a bootstrap token and the token of a replica, got %d secrets", len(s.secrets))
	}
}

// plantedSpace is a namespace with the secrets that are looked for.
type plantedSpace struct {
	*space

	secrets planted.Secrets
}

// createAtAzure creates a machine at Azure, with a class and a Secret of its own.
func (s *plantedSpace) createAtAzure(name, clientSecret string) {
	s.Helper()
	content := harness.AzureSecret()
	content["clientSecret"] = clientSecret
	content[v1alpha1.SecretKeyUserData] += "\n# " + plantedUserData + "\n"
	s.createSecret(name, content)
	class := harness.AzureClass(s.name)
	class.Name, class.SecretRef.Name = name, name
	_, err := s.api().MachineClasses(s.name).Create(s.Context(), class, metav1.CreateOptions{})
	s.must(err)
	s.createMachine(name, func(m *v1alpha1.Machine) { m.Spec.Class.Name = name })
}

// runs waits until a machine runs, and adds the bootstrap tokens that exist meanwhile.
func (s *plantedSpace) runs(name string) {
	s.Helper()
	s.eventually("machine "+name+" runs", func(ctx context.Context) error {
		if err := s.addBootstrapTokens(ctx); err != nil {
			return err
		}
		m, err := s.api().Machines(s.name).Get(ctx, name, metav1.GetOptions{})
		if err == nil && m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
			err = fmt.Errorf("its status is %+v", m.Status)
		}
		return err
	})
}

func (s *plantedSpace) show(what, text string) {
	s.Helper()
	for _, found := range s.secrets.Find(text) {
		s.Errorf("%s: %s", what, found)
	}
}

// addTokensOfReplicas adds the credentials of the replicas' kubeconfigs.
func (s *plantedSpace) addTokensOfReplicas() {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(s.lab.Dir, "fleet-*.kubeconfig"))
	s.must(err)
	for _, file := range files {
		config, err := clientcmd.LoadFromFile(file)
		s.must(err)
		for name, user := range config.AuthInfos {
			if user.Token != "" {
				s.secrets["token of "+name+" in "+filepath.Base(file)] = user.Token
			}
			if len(user.ClientKeyData) > 0 {
				s.secrets["key of "+name+" in "+filepath.Base(file)] = string(user.ClientKeyData)
			}
		}
	}
}

// addBootstrapTokens adds the tokens that exist now.
func (s *plantedSpace) addBootstrapTokens(ctx context.Context) error {
	list, err := s.lab.Target.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	if err != nil {
		return err
	}
	for _, secret := range list.Items {
		if token := string(secret.Data["token-secret"]); token != "" {
			s.secrets["bootstrap token "+secret.Name] = token
		}
	}
	return nil
}

// showPages shows the pages of all replicas.
func (s *plantedSpace) showPages() {
	s.Helper()
	replicas, err := s.lab.Replicas(s.Context())
	s.must(err)
	for _, replica := range replicas {
		for _, path := range []string{
			"/metrics", "/livez?verbose", "/readyz?verbose", "/statusz", "/flagz", "/debug/slots", "/debug/apiservers", "/debug/faultpoints", "/debug/pprof/",
			"/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/heap", "/debug/pprof/trace?seconds=1",
		} {
			text, err := s.page(replica, path)
			s.must(err)
			s.show(replica+" "+path, text)
		}
	}
}

func (s *plantedSpace) page(replica, path string) (string, error) {
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.lab.Endpoint(replica)+path, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	// A replica of a busy computer may not be ready for a moment; what it shows then is looked at, too.
	unready := answer.StatusCode == http.StatusServiceUnavailable && strings.HasPrefix(path, "/readyz")
	if answer.StatusCode != http.StatusOK && !unready || len(text) == 0 {
		err = errors.Join(err, fmt.Errorf("%s of %s: %s with %d bytes", path, replica, answer.Status, len(text)))
	}
	return string(text), err
}

// showObjects shows the objects of the fleet in both clusters, and the Events and Leases.
func (s *plantedSpace) showObjects() {
	s.Helper()
	for _, args := range [][]string{
		{"get", "mcd,mcs,mc,mcc,leases,events,namespaces,nodes", "-A", "-o", "json"},
		{"--kubeconfig", filepath.Join(s.lab.Dir, "target.kubeconfig"), "get", "nodes,leases,events", "-A", "-o", "json"},
	} {
		text, err := s.lab.Kubectl(s.Context(), args...)
		s.must(err)
		s.show(strings.Join(args, " "), text)
	}
}

// showSpans shows spans of the lives of machines, by their names.
func (s *plantedSpace) showSpans(names ...string) {
	s.Helper()
	s.eventually("Jaeger has spans of the machines", func(ctx context.Context) error {
		for _, name := range names {
			spans, err := s.lab.Spans(ctx, name, nil)
			if err == nil && len(spans) == 0 {
				err = fmt.Errorf("there is no span %s", name)
			}
			if err != nil {
				return err
			}
			text, err := json.Marshal(spans)
			if err != nil {
				return err
			}
			s.show("spans "+name, string(text))
		}
		return nil
	})
}

// showLogs shows the log of the driver of Azure, and the logs of the replicas, whose lines are objects of JSON.
func (s *plantedSpace) showLogs() {
	s.Helper()
	ofDriver, err := os.ReadFile(filepath.Join(s.lab.Dir, "logs", harness.AzureDriver+".log"))
	s.must(err)
	s.show("log of the driver of Azure", string(ofDriver))
	files, err := filepath.Glob(filepath.Join(s.lab.Dir, "logs", "fleet-*.log"))
	s.must(err)
	lines := 0
	for _, file := range files {
		log, err := os.ReadFile(file)
		s.must(err)
		for line := range strings.Lines(string(log)) {
			lines++
			s.show(filepath.Base(file), line)
			if !json.Valid([]byte(line)) {
				s.Errorf("%s: no JSON: %s", filepath.Base(file), line)
			}
		}
	}
	if lines < 1000 {
		s.Errorf("the logs have %d lines; want those of --v=10", lines)
	}
}
