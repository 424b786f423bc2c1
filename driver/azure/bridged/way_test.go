package bridged

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

const (
	// elsewhere is the name of a server that is not Azure's.
	elsewhere = "elsewhere.example"
	notFound  = `{"error": {"code": "ResourceNotFound", "message": "The resource was not found."}}`
	// maxBody bounds the body of a request.
	maxBody = 1 << 20
)

// brokenWay is the way to the cloud, which fails in the ways that the cloud cannot.
type brokenWay struct {
	how   atomic.Pointer[drivertest.Failure]
	cloud http.Handler
}

func (w *brokenWay) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var how drivertest.Failure
	if p := w.how.Load(); p != nil {
		how = *p
	}
	switch {
	case r.Host == elsewhere:
		reply(out, http.StatusNotFound, notFound)
		return
	case how == drivertest.Unreachable:
		panic(http.ErrAbortHandler) // the connection ends
	case r.Host != azuretest.HostManagement:
		w.cloud.ServeHTTP(out, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(out, r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	makesVM := r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/virtualMachines/")
	switch {
	case how == drivertest.Nonsense:
		reply(out, http.StatusNotFound, "<html>not found</html>")
	case how == drivertest.Portal:
		reply(out, http.StatusOK, "<html>log in</html>")
	case how == drivertest.PartialCreate && makesVM: // for good: MCM's driver repeats what fails for now
		reply(out, http.StatusBadRequest, `{"error": {"code": "InvalidParameter", "message": "The VM is rejected."}}`)
	case how == drivertest.SecondPage && bytes.Contains(body, []byte("$skipToken")):
		reply(out, http.StatusInternalServerError, `{"error": {"code": "InternalServerError", "message": "the page is lost"}}`)
	case how == drivertest.Elsewhere:
		http.Redirect(out, r, "https://"+elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
	default:
		if lie := lieAbout(how, r); lie != "" {
			reply(out, http.StatusOK, lie)
			return
		}
		w.cloud.ServeHTTP(out, r)
	}
}

// lieAbout returns a false answer to a request; "" for none.
func lieAbout(how drivertest.Failure, r *http.Request) string {
	name := path.Base(r.URL.Path)
	isQuery := strings.HasSuffix(r.URL.Path, "/providers/Microsoft.ResourceGraph/resources")
	row := map[string]any{"type": "microsoft.compute/virtualmachines", "name": "other"}
	vm := map[string]any{"id": r.URL.Path, "name": name, "properties": map[string]any{"provisioningState": "Succeeded"}}
	switch how { //nolint:exhaustive // all others are no false answers
	case drivertest.Endless:
		const count = 1 << 18
		return `{"totalRecords": 262144, "data": [{}` + strings.Repeat(",{}", count-1) + `], "resources": [{}` + strings.Repeat(",{}", count-1) +
			`]}`
	case drivertest.WrongTypes:
		return `{"totalRecords": "none", "data": 1, "id": 1, "name": ["a"], "tags": "none"}`
	case drivertest.NoID:
		delete(vm, "id")
		delete(row, "name")
	case drivertest.BadID:
		vm["id"], row["name"] = r.URL.Path+"\x00\n", "\x00\n"
	case drivertest.OtherVM:
		vm["id"], vm["name"] = path.Dir(r.URL.Path)+"/other", "other"
	default:
		return ""
	}
	var answer any = vm
	if isQuery {
		answer = map[string]any{"totalRecords": 1, "count": 1, "data": []any{row}}
	}
	raw, _ := json.Marshal(answer) // all of it can be encoded
	return string(raw)
}

func reply(out http.ResponseWriter, status int, body string) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_, _ = io.WriteString(out, body) // a client that has gone does not need it
}
