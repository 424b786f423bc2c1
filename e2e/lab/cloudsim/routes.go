package cloudsim

import (
	"net/http"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Handler serves the cloud's API, and that of its operator.
func (c *Cloud) Handler() http.Handler {
	mux := http.NewServeMux()
	on := func(method, path string, op cloudapi.Operation, read reader) {
		mux.Handle(method+" "+path, c.handle(op, read))
	}
	on("POST", cloudapi.PathInstances, cloudapi.OpCreateInstance, c.readCreateInstance)
	on("GET", cloudapi.PathInstances, cloudapi.OpListInstances, func(r *http.Request) (request, error) {
		query := r.URL.Query()
		return request{do: func(time.Duration, *cloudapi.Call) (any, error) { return c.listInstances(query) }}, nil
	})
	on("GET", cloudapi.PathInstance, cloudapi.OpGetInstance, c.readInstance(c.getInstance))
	on("DELETE", cloudapi.PathInstance, cloudapi.OpDeleteInstance, func(r *http.Request) (request, error) {
		condition := r.URL.Query()
		return c.readInstance(func(id string, call *cloudapi.Call) (cloudapi.Instance, error) {
			return c.deleteInstance(id, condition, call)
		})(r)
	})
	on("PATCH", cloudapi.PathInstanceAttributes, cloudapi.OpModifyInstance, c.readModifyInstance)
	on("POST", cloudapi.PathVolumes, cloudapi.OpCreateVolume, c.readCreateVolume)
	on("GET", cloudapi.PathVolumes, cloudapi.OpListVolumes, plain(func() any { return c.listVolumes() }))
	on("GET", cloudapi.PathVolume, cloudapi.OpGetVolume, c.readVolume(func(id string, _ *cloudapi.Call) (cloudapi.Volume, error) {
		return c.getVolume(id)
	}))
	on("DELETE", cloudapi.PathVolume, cloudapi.OpDeleteVolume, c.readVolume(c.deleteVolume))
	on("PUT", cloudapi.PathVolumeAttachment, cloudapi.OpAttachVolume, c.readAttachVolume)
	on("DELETE", cloudapi.PathVolumeAttachment, cloudapi.OpDetachVolume, c.readDetachVolume)
	on("GET", cloudapi.PathLeftovers, cloudapi.OpListLeftovers, func(r *http.Request) (request, error) {
		query := r.URL.Query()
		return request{do: func(time.Duration, *cloudapi.Call) (any, error) { return c.pageOfLeftovers(query) }}, nil
	})
	on("DELETE", cloudapi.PathLeftover, cloudapi.OpDeleteLeftover, func(r *http.Request) (request, error) {
		id, condition := r.PathValue("id"), r.URL.Query()
		return request{do: func(_ time.Duration, call *cloudapi.Call) (any, error) { return c.deleteLeftover(id, condition, call) }}, nil
	})
	on("DELETE", cloudapi.PathLeftovers, cloudapi.OpDeleteLeftovers, func(r *http.Request) (request, error) {
		query := r.URL.Query()
		return request{do: func(_ time.Duration, call *cloudapi.Call) (any, error) { return c.deleteLeftovers(query, call) }}, nil
	})
	on("GET", cloudapi.PathRegions, cloudapi.OpDescribeCatalog, plain(func() any { return cloudapi.RegionList{Items: c.offers.regions} }))
	on("GET", cloudapi.PathInstanceTypes, cloudapi.OpDescribeCatalog,
		plain(func() any { return cloudapi.InstanceTypeList{Items: c.offers.types} }))
	on("GET", cloudapi.PathImages, cloudapi.OpDescribeCatalog, plain(func() any { return cloudapi.ImageList{Items: c.offers.images} }))
	on("GET", cloudapi.PathNetworks, cloudapi.OpDescribeCatalog, plain(func() any { return cloudapi.NetworkList{Items: c.offers.networks} }))

	mux.HandleFunc("GET "+cloudapi.PathHealth, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET "+cloudapi.PathSettings, c.admin(func(*http.Request) (any, error) { return c.currentSettings(), nil }))
	mux.HandleFunc("PATCH "+cloudapi.PathSettings, c.admin(c.patchSettings))
	mux.HandleFunc("GET "+cloudapi.PathAllInstances, c.admin(func(*http.Request) (any, error) { return c.allInstances(), nil }))
	mux.HandleFunc("POST "+cloudapi.PathAllInstances, c.admin(c.hostInstance))
	mux.HandleFunc("GET "+cloudapi.PathAllLeftovers, c.admin(func(*http.Request) (any, error) { return c.allLeftovers(), nil }))
	mux.HandleFunc("POST "+cloudapi.PathInstanceActions, c.admin(c.actOnInstance))
	return mux
}

func (c *Cloud) readCreateInstance(r *http.Request) (request, error) {
	var body cloudapi.CreateInstanceRequest
	if err := decode(r, &body); err != nil {
		return request{}, err
	}
	zone := body.Zone
	if zone == "" {
		zone = cloudapi.DefaultZone
	}
	return request{
		zone:   zone,
		about:  func(call *cloudapi.Call) { call.Token, call.Machine = body.ClientToken, body.Name },
		partly: func(call *cloudapi.Call) error { return c.createPartly(body, call) },
		do: func(latency time.Duration, call *cloudapi.Call) (any, error) {
			return c.createInstance(body, latency, call)
		},
	}, nil
}

func (c *Cloud) readModifyInstance(r *http.Request) (request, error) {
	var body cloudapi.InstanceAttributes
	if err := decode(r, &body); err != nil {
		return request{}, err
	}
	condition := r.URL.Query()
	return c.readInstance(func(id string, call *cloudapi.Call) (cloudapi.Instance, error) {
		return c.modifyInstance(id, body, condition, call)
	})(r)
}

// readInstance reads a call about one VM.
func (c *Cloud) readInstance(do func(id string, call *cloudapi.Call) (cloudapi.Instance, error)) reader {
	return func(r *http.Request) (request, error) {
		id := r.PathValue("id")
		return request{
			zone:  c.zoneOf(id),
			about: func(call *cloudapi.Call) { c.noteInstance(call, id) },
			do:    func(_ time.Duration, call *cloudapi.Call) (any, error) { return do(id, call) },
		}, nil
	}
}

// noteInstance records the VM of a call.
func (c *Cloud) noteInstance(call *cloudapi.Call, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call.Instance = id
	if i := c.instances[id]; i != nil {
		about(call, i)
	}
}

// zoneOf returns the zone of a VM, and "" when there is none.
func (c *Cloud) zoneOf(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.instances[id]; i != nil {
		return i.API.Zone
	}
	return ""
}

func (c *Cloud) readCreateVolume(r *http.Request) (request, error) {
	var body cloudapi.CreateVolumeRequest
	if err := decode(r, &body); err != nil {
		return request{}, err
	}
	return request{zone: body.Zone, do: func(_ time.Duration, call *cloudapi.Call) (any, error) {
		return c.createVolume(body, call)
	}}, nil
}

func (c *Cloud) readAttachVolume(r *http.Request) (request, error) {
	var body cloudapi.AttachVolumeRequest
	if err := decode(r, &body); err != nil {
		return request{}, err
	}
	return c.readVolume(func(id string, call *cloudapi.Call) (cloudapi.Volume, error) {
		return c.attachVolume(id, body.InstanceID, call)
	})(r)
}

func (c *Cloud) readDetachVolume(r *http.Request) (request, error) {
	from := r.URL.Query().Get(cloudapi.QueryInstanceID)
	return c.readVolume(func(id string, call *cloudapi.Call) (cloudapi.Volume, error) {
		return c.detachVolume(id, from, call)
	})(r)
}

// readVolume reads a call about one volume.
func (c *Cloud) readVolume(do func(id string, call *cloudapi.Call) (cloudapi.Volume, error)) reader {
	return func(r *http.Request) (request, error) {
		id := r.PathValue("id")
		return request{do: func(_ time.Duration, call *cloudapi.Call) (any, error) { return do(id, call) }}, nil
	}
}

// plain reads a call that has no parameters and cannot fail.
func plain(do func() any) reader {
	return func(*http.Request) (request, error) {
		return request{do: func(time.Duration, *cloudapi.Call) (any, error) { return do(), nil }}, nil
	}
}
