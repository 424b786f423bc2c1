package launcher

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/proxy"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// newFleet returns a launcher whose replicas and drivers only log their flags, and a client of it.
// There is no server behind the links.
func newFleet(t *testing.T) (*Launcher, Client) {
	t.Helper()
	l, folder := newLauncher(t)
	l.options.Bin, l.options.Restart = t.TempDir(), RestartNever
	program := "#!/bin/sh\necho \"$@\"\nexec sleep 1000\n"
	for _, name := range []string{fleetBinary, driverBinary} {
		if err := os.WriteFile(l.options.binary(name), []byte(program), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	programs := controlplane.Programs{Dir: string(folder)}
	now := clock.RealClock{}.Now()
	etcd, err := controlplane.NewEtcd(programs, 1, 2, now)
	if err != nil {
		t.Fatal(err)
	}
	if l.control, err = controlplane.NewCluster("control", "", programs, controlplane.Ports{APIServer: 3}, etcd, now); err != nil {
		t.Fatal(err)
	}
	l.target = l.control
	l.endpoint(cloudsimName, "http://127.0.0.1:4", nil)
	server := httptest.NewServer(l)
	l.endpoint(launcherName, server.URL, nil)
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
		for _, p := range l.supervisor.List() {
			if err := l.supervisor.Kill(p.Name); err != nil {
				t.Error(err)
			}
		}
		l.proxies.CloseAll()
	})
	return l, NewClient(folder)
}

func scale(t *testing.T, client Client, replicas int) []Pod {
	t.Helper()
	pods, err := client.Scale(t.Context(), replicas)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func podNames(pods []Pod) (names []string) {
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

// linksOf are the links of a process, by name.
func linksOf(t *testing.T, client Client, process string) map[string]Link {
	t.Helper()
	links, err := client.Links(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Link{}
	for _, link := range links {
		if link.Process == process {
			found[link.Link] = link
		}
	}
	return found
}

// flagsOf waits until a process has logged its flags, and returns those of its last start.
func flagsOf(t *testing.T, l *Launcher, process string) map[string]string {
	t.Helper()
	var line string
	labtest.For(t, process+" has logged its flags", func() bool {
		p, err := l.supervisor.Get(process)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(p.Log)
		line = string(data[strings.LastIndexByte(strings.TrimSpace(string(data)), '\n')+1:])
		return err == nil && strings.HasSuffix(line, "\n")
	})
	flags := map[string]string{}
	for flag := range strings.SplitSeq(strings.TrimSpace(line), " --") {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		flags[name] = value
	}
	return flags
}

// A replica gets its name, has its own identity, and reaches each server through a proxy of
// its own.
func TestReplica(t *testing.T) {
	l, client := newFleet(t)
	pod := scale(t, client, 2)[1]
	links := linksOf(t, client, "fleet-1")
	flags := flagsOf(t, l, "fleet-1")
	want := map[string]string{
		"replica-name": "fleet-1", "fleet-name": "fleet", "fleet-namespace": "machine-controller-fleet",
		"pod-uid": pod.UID, "state-dir": pod.Dir, "debug-hooks": "",
		"driver-socket": "simulated=" + l.options.socketOf("fleet-1"),
	}
	for name, value := range want {
		if flags[name] != value {
			t.Errorf("flag --%s=%s, want %q", name, flags[name], value)
		}
	}
	driver := flagsOf(t, l, "driver-simulated-fleet-1")
	if socket, endpoints := driver["socket"], driver["endpoints"]; socket != l.options.socketOf("fleet-1") ||
		endpoints != "http://"+links["cloud"].Listen {
		t.Errorf("its driver listens on %s and calls %s, want the socket of the replica, and its link", socket, endpoints)
	}
	if upstreams := []string{
		links["control"].Upstream, links["target"].Upstream, links["cloud"].Upstream,
	}; !cmp.Equal(upstreams, []string{"127.0.0.1:3", "127.0.0.1:3", "127.0.0.1:4"}) {
		t.Errorf("links lead to %v", upstreams)
	}
	for _, link := range []string{"control", "target"} {
		config, err := clientcmd.BuildConfigFromFlags("", flags[link+"-kubeconfig"])
		if err != nil {
			t.Fatal(err)
		}
		if config.Host != "https://"+links[link].Listen {
			t.Errorf("%s: the kubeconfig leads to %s, the proxy is at %s", link, config.Host, links[link].Listen)
		}
	}
	if spec := l.podSpec(pod); spec.StopTimeout != 30*time.Second {
		t.Errorf("it has %v to end, want 30 s", spec.StopTimeout)
	}
	if info, err := os.Stat(pod.Dir); err != nil || !info.IsDir() {
		t.Errorf("the pod's folder: %v", err)
	}
}

// The same pod's next process has its UID and folder; the next pod's has others, at the same
// address.
func TestReplace(t *testing.T) {
	l, client := newFleet(t)
	pod := scale(t, client, 1)[0]
	mark := filepath.Join(pod.Dir, "mark")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Act(t.Context(), "fleet-0", "restart"); err != nil {
		t.Fatal(err)
	}
	if got := flagsOf(t, l, "fleet-0")["pod-uid"]; got != pod.UID {
		t.Errorf("after a restart the pod is %s, want %s", got, pod.UID)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	pods, err := client.Replace(t.Context(), "fleet-0")
	if err != nil {
		t.Fatal(err)
	}
	next := pods[0]
	if next.UID == pod.UID || next.Dir == pod.Dir || next.URL != pod.URL {
		t.Errorf("the next pod is %+v, the last one was %+v", next, pod)
	}
	labtest.For(t, "fleet-0 is restarted as another pod", func() bool { return flagsOf(t, l, "fleet-0")["pod-uid"] == next.UID })
	if _, err := os.Stat(pod.Dir); !absent(err) {
		t.Errorf("the last pod's folder: %v", err)
	}
}

// A double is another process of the same replica, in its pod or in another, with separate links.
func TestDouble(t *testing.T) {
	l, client := newFleet(t)
	pod := scale(t, client, 1)[0]
	pods, err := client.Double(t.Context(), "fleet-0", false)
	if err != nil {
		t.Fatal(err)
	}
	double := pods[1]
	if double.Name != "fleet-0-double" || double.UID != pod.UID || double.Dir != pod.Dir || double.URL == pod.URL {
		t.Errorf("double %+v of %+v", double, pod)
	}
	if got := flagsOf(t, l, double.Name); got["replica-name"] != "fleet-0" || got["pod-uid"] != pod.UID {
		t.Errorf("flags of the double: %v", got)
	}
	own, others := linksOf(t, client, double.Name), linksOf(t, client, "fleet-0")
	if own["control"].Listen == others["control"].Listen {
		t.Error("both have one proxy")
	}
	if driver := flagsOf(t, l, "driver-simulated-fleet-0-double"); driver["endpoints"] != "http://"+own["cloud"].Listen ||
		driver["socket"] == l.options.socketOf("fleet-0") {
		t.Errorf("flags of the driver of the double: %v", driver)
	}
	if _, err := client.Double(t.Context(), "fleet-0", true); err == nil {
		t.Error("there are three")
	}
	if _, err := client.Act(t.Context(), double.Name, "kill"); err != nil {
		t.Fatal(err)
	}
	pods, err = client.Double(t.Context(), "fleet-0", true)
	if err != nil {
		t.Fatal(err)
	}
	if second := pods[1]; second.UID == pod.UID || second.Dir == pod.Dir {
		t.Errorf("double in a new pod: %+v", second)
	}
	if _, err := os.Stat(pod.Dir); err != nil {
		t.Errorf("the folder went with the double: %v", err)
	}
}

// Scaling down removes the highest, with their doubles and all that was created for them.
func TestScale(t *testing.T) {
	l, client := newFleet(t)
	if diff := cmp.Diff([]string{"fleet-0", "fleet-1", "fleet-2"}, podNames(scale(t, client, 3))); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if _, err := client.Double(t.Context(), "fleet-2", true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"fleet-0"}, podNames(scale(t, client, 1))); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	links, err := client.Links(t.Context())
	if err != nil || len(links) != 3 {
		t.Errorf("links: %v, %v; want those of fleet-0", links, err)
	}
	folders, err := os.ReadDir(l.options.folder().path("pods"))
	if err != nil || len(folders) != 1 {
		t.Errorf("folders of pods: %v, %v; want one", folders, err)
	}
	for _, name := range []string{"fleet-1", "driver-simulated-fleet-1", "driver-simulated-fleet-2-double"} {
		if _, err := l.supervisor.Get(name); err == nil || l.endpoints[name] != "" {
			t.Errorf("%s is still there, at %q", name, l.endpoints[name])
		}
	}
	state, err := l.options.folder().ReadState()
	if err != nil || state.Options.Replicas != 1 {
		t.Errorf("the state says %d replicas, %v; want 1", state.Options.Replicas, err)
	}
}

// A replica that failed to start is not listed, and can be started once the cause is removed.
func TestScaleWithoutFleet(t *testing.T) {
	l, client := newFleet(t)
	l.withoutFleet = true
	if _, err := client.Scale(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "started with replicas") {
		t.Errorf("error %v, want a refusal: the cluster has no CRDs", err)
	}
}

func TestScaleFails(t *testing.T) {
	l, client := newFleet(t)
	scale(t, client, 1)
	program := l.options.binary(fleetBinary)
	if err := os.Rename(program, program+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Scale(t.Context(), 3); err == nil {
		t.Error("a replica runs without a program")
	}
	pods, err := client.Pods(t.Context())
	if diff := cmp.Diff([]string{"fleet-0"}, podNames(pods)); diff != "" || err != nil {
		t.Errorf("pods: %v (-want +got):\n%s", err, diff)
	}
	if err := os.Rename(program+".away", program); err != nil {
		t.Fatal(err)
	}
	if pods := scale(t, client, 2); len(pods) != 2 {
		t.Errorf("pods: %v", pods)
	}
}

// A process that ends by itself is restarted; not with RestartNever, and not the double.
func TestReplicasAreRestarted(t *testing.T) {
	l, client := newFleet(t)
	l.options.Restart = RestartAlways
	scale(t, client, 1)
	if _, err := client.Double(t.Context(), "fleet-0", false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fleet-0", "fleet-0-double"} {
		if _, err := client.Act(t.Context(), name, "crash"); err != nil {
			t.Fatal(err)
		}
	}
	labtest.For(t, "fleet-0 is restarted", func() bool {
		p, err := l.supervisor.Get("fleet-0")
		return err == nil && p.State == supervise.Running && p.Starts == 2
	})
	if p, err := l.supervisor.Get("fleet-0-double"); err != nil || p.State != supervise.Exited || p.Returns {
		t.Errorf("the double: %+v, %v", p, err)
	}
}

func TestFaults(t *testing.T) {
	_, client := newFleet(t)
	scale(t, client, 1)
	want := proxy.Fault{Kind: proxy.Cut, Only: proxy.Answers}
	link, err := client.SetFault(t.Context(), "fleet-0", "target", want)
	if err != nil || link.Fault != want || link.Process != "fleet-0" || link.Link != "target" {
		t.Errorf("link %+v, %v", link, err)
	}
	faults := map[string]proxy.Fault{}
	for name, link := range linksOf(t, client, "fleet-0") {
		faults[name] = link.Fault
	}
	if diff := cmp.Diff(map[string]proxy.Fault{"control": {}, "target": want, "cloud": {}}, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestFleetRefusals(t *testing.T) {
	l, client := newFleet(t)
	scale(t, client, 1)
	for request, want := range map[string]int{
		"PUT /v1/replicas {\"replicas\": 0}":                   http.StatusBadRequest,
		"PUT /v1/replicas {\"pods\": 1}":                       http.StatusBadRequest,
		"PUT /v1/replicas ":                                    http.StatusBadRequest,
		"POST /v1/replicas/fleet-7/replace ":                   http.StatusNotFound,
		"POST /v1/replicas/sleeper/double ":                    http.StatusNotFound,
		"PUT /v1/links/fleet-0/moon {}":                        http.StatusNotFound,
		"PUT /v1/links/fleet-0/cloud {\"kind\": \"burn\"}":     http.StatusBadRequest,
		"POST /v1/etcd/save {\"file\": \"relative\"}":          http.StatusBadRequest,
		"POST /v1/etcd/restore {\"file\": \"/no/such/file\"} ": http.StatusInternalServerError,
	} {
		fields := strings.SplitN(request, " ", 3)
		recorder := httptest.NewRecorder()
		l.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), fields[0], fields[1], strings.NewReader(fields[2])))
		if recorder.Code != want {
			t.Errorf("%s: %d, want %d: %s", request, recorder.Code, want, recorder.Body)
		}
	}
}
