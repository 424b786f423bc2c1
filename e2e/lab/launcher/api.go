package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/proxy"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// ProcessList is the answer to GET /v1/processes.
type ProcessList struct {
	Processes []supervise.Process `json:"processes"`
}

// Health is the answer to GET /v1/health: "ok", or the error, for each process with a probe.
type Health map[string]string

// Healthy is the health of a process that answers.
const Healthy = "ok"

// ErrorBody is the body of an answer other than 2xx.
type ErrorBody struct {
	Error string `json:"error"`
}

// ServeHTTP is the launcher's API:
//
//	GET  /v1/processes                  → ProcessList
//	GET  /v1/processes/{name}           → supervise.Process
//	POST /v1/processes/{name}/{action}  → supervise.Process, as it is afterwards
//	GET  /v1/health                     → Health
//	GET  /v1/pods                       → PodList
//	PUT  /v1/replicas        Scale      → PodList
//	POST /v1/replicas/{name}/replace    → PodList
//	POST /v1/replicas/{name}/double     → PodList; ?pod=new gives the second process a separate pod
//	GET  /v1/links                      → LinkList
//	PUT  /v1/links/{process}/{link}  proxy.Fault → Link
//	POST /v1/etcd/save       Snapshot   → Snapshot
//	POST /v1/etcd/restore    Snapshot   → Snapshot
//
// The actions are start, stop (SIGTERM, and SIGKILL after 5 s, or 30 s for replicas), kill
// (SIGKILL), crash (SIGKILL too, but a replica is restarted as under a kubelet), pause (SIGSTOP),
// resume and restart. When an action that ends a process is answered, the process has been reaped
// and is no longer in pids.json; when one that starts it is answered, the process runs, but need
// not be ready. An unknown process or action is 404, an action that does not fit (start what runs,
// pause what does not) is 409, and an invalid body is 400.
func (l *Launcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/processes", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, ProcessList{Processes: l.supervisor.List()})
	})
	mux.HandleFunc("GET /v1/processes/{name}", func(w http.ResponseWriter, r *http.Request) {
		l.answerProcess(w, r.PathValue("name"), nil)
	})
	mux.HandleFunc("POST /v1/processes/{name}/{action}", l.act)
	mux.HandleFunc("GET /v1/health", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, l.health(r.Context()))
	})
	l.handleFleet(mux)
	l.handleEtcd(mux)
	l.handleLandscape(mux)
	mux.ServeHTTP(w, r)
}

// actions returns the actions on a process, by name.
func actions(s *supervise.Supervisor) map[string]func(context.Context, string) error {
	atOnce := func(action func(string) error) func(context.Context, string) error {
		return func(_ context.Context, name string) error { return action(name) }
	}
	return map[string]func(context.Context, string) error{
		"start":   atOnce(s.Start),
		"stop":    s.Stop,
		"kill":    atOnce(s.Kill),
		"crash":   atOnce(s.Crash),
		"pause":   atOnce(s.Pause),
		"resume":  atOnce(s.Resume),
		"restart": s.Restart,
	}
}

func (l *Launcher) act(w http.ResponseWriter, r *http.Request) {
	action, ok := actions(l.supervisor)[r.PathValue("action")]
	if !ok {
		answer(w, http.StatusNotFound, ErrorBody{Error: "unknown action " + r.PathValue("action")})
		return
	}
	name := r.PathValue("name")
	// The action continues when its caller disconnects.
	err := action(context.WithoutCancel(r.Context()), name)
	l.log.Info("action", "process", name, "action", r.PathValue("action"), "err", err)
	l.answerProcess(w, name, err)
}

// answerProcess answers with an error, or else with a process.
func (l *Launcher) answerProcess(w http.ResponseWriter, name string, err error) {
	p, getErr := l.supervisor.Get(name)
	if err == nil {
		err = getErr
	}
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, p)
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, supervise.ErrUnknown), errors.Is(err, proxy.ErrUnknown):
		status = http.StatusNotFound
	case errors.Is(err, supervise.ErrRunning), errors.Is(err, supervise.ErrNotRunning):
		status = http.StatusConflict
	case errors.Is(err, errBadRequest):
		status = http.StatusBadRequest
	}
	answer(w, status, ErrorBody{Error: err.Error()})
}

// health probes all processes concurrently.
func (l *Launcher) health(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	l.mu.Lock()
	probes := maps.Clone(l.probes)
	l.mu.Unlock()

	var mu sync.Mutex
	var wg sync.WaitGroup
	health := Health{}
	for name, p := range probes {
		wg.Go(func() {
			said := Healthy
			if err := p(ctx); err != nil {
				said = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			health[name] = said
		})
	}
	wg.Wait()
	return health
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // An error means that the caller has disconnected.
}
