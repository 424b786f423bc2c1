package cloudapi

import "time"

// Paths of the cloud's API. Names in braces are path parameters.
const (
	// PathInstances: POST creates (CreateInstanceRequest → Instance), GET lists (ListInstances… →
	// InstanceList).
	PathInstances = "/v1/instances"
	// PathInstance: GET describes (→ Instance), DELETE terminates (→ Instance, state stopping or
	// terminated).
	PathInstance = "/v1/instances/{id}"
	// PathInstanceAttributes: PATCH changes attributes that can only be set after a create
	// (InstanceAttributes → Instance).
	PathInstanceAttributes = "/v1/instances/{id}/attributes"
	// PathVolumes: POST creates (CreateVolumeRequest → Volume), GET lists (→ VolumeList).
	PathVolumes = "/v1/volumes"
	// PathVolume: GET describes (→ Volume), DELETE removes.
	PathVolume = "/v1/volumes/{id}"
	// PathVolumeAttachment: PUT attaches the volume (AttachVolumeRequest → Volume), DELETE detaches it
	// (→ Volume). Repeating either changes nothing. A volume that is attached to a VM that has begun
	// to end cannot be detached; it is released when nothing of the VM runs any more, which may be a
	// moment after it is terminated.
	PathVolumeAttachment = "/v1/volumes/{id}/attachment"
	// PathLeftovers: GET lists left-overs (→ LeftoverList), DELETE removes all with the tags of
	// QueryTag, at least one (→ LeftoverList, of what was removed).
	PathLeftovers = "/v1/leftovers"
	// PathLeftover: DELETE removes one left-over (→ Leftover).
	PathLeftover = "/v1/leftovers/{id}"
	// PathRegions: GET lists regions with their zones (→ RegionList).
	PathRegions = "/v1/regions"
	// PathInstanceTypes: GET (→ InstanceTypeList).
	PathInstanceTypes = "/v1/instance-types"
	// PathImages: GET (→ ImageList).
	PathImages = "/v1/images"
	// PathNetworks: GET (→ NetworkList).
	PathNetworks = "/v1/networks"
	// PathHealth: GET answers 200 when the cloud serves.
	PathHealth = "/healthz"

	// PathSettings: GET reads and PATCH (a JSON merge patch) changes Settings while the cloud runs.
	PathSettings = "/admin/v1/settings"
	// PathInstanceActions: POST acts on one VM (InstanceAction → Instance).
	PathInstanceActions = "/admin/v1/instances/{id}/actions"
	// PathAllInstances: GET (→ InstanceList) shows every VM that is not forgotten, ended ones too, in
	// one page. It is for tests: without latency, without faults, and not in the call log. POST
	// creates the VM of another cloud, which runs here (HostedInstance → Instance), in the same way.
	PathAllInstances = "/admin/v1/instances"
	// PathAllLeftovers: GET (→ LeftoverList) shows all left-overs, in the same way.
	PathAllLeftovers = "/admin/v1/leftovers"
)

// Query parameters; of GET PathInstances, unless stated otherwise.
const (
	// QueryTag filters by a tag, "key=value" or "key"; may be repeated, all must match. Also of GET
	// and DELETE PathLeftovers.
	QueryTag = "tag"
	// QueryName filters by the exact name of the VM.
	QueryName = "name"
	// QueryState filters by state; may be repeated, one must match. Without it ended VMs are omitted.
	QueryState = "state"
	// QueryPageSize is the number of items in a page, 1 to MaxPageSize; default DefaultPageSize. Also
	// of GET PathLeftovers.
	QueryPageSize = "pageSize"
	// QueryPageToken continues a list; from NextPageToken of InstanceList or LeftoverList.
	QueryPageToken = "pageToken"
	// QueryInstanceID at DELETE PathVolumeAttachment is the VM to detach from. A volume that is
	// attached elsewhere stays there. Without it the volume is detached from wherever it is.
	QueryInstanceID = "instanceID"
	// QueryIfTag at DELETE PathInstance, PATCH PathInstanceAttributes and DELETE PathLeftover is a
	// tag, "key=value", that the VM or left-over must have, and QueryIfNoTag a key that it must not
	// have; both may be repeated. Else the call changes nothing and is rejected with
	// CodePreconditionFailed, unless the VM has ended.
	QueryIfTag   = "ifTag"
	QueryIfNoTag = "ifNoTag"
)

// Sizes of list pages.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
)

// The names of the cloud's VMs and volumes in Kubernetes.
const (
	// ProviderIDPrefix begins every provider ID.
	ProviderIDPrefix = "simulated:///"
	// CSIDriver is the CSI driver of the cloud's volumes; the volumeHandle of a PersistentVolume is
	// the volume's ID.
	CSIDriver = "csi.simulated.cloud"
	// AnnotationPodTermination on a pod of a simulated Node overrides Settings.PodTerminationTime for
	// that pod.
	AnnotationPodTermination = "simulated.cloud/pod-termination-time"
	// AnnotationUpdateResult on a simulated Node overrides InPlaceUpdates.Result in the settings for
	// that Node.
	AnnotationUpdateResult = "simulated.cloud/update-result"
)

// The defaults of the cloud for the fields of a create.
const (
	DefaultRegion       = "sim-1"
	DefaultZone         = "sim-1a"
	DefaultInstanceType = "standard-4"
	DefaultImage        = "linux-1"
	DefaultNetwork      = "default"
)

// InstanceState is the state of a VM's life cycle.
type InstanceState string

// The states. A VM goes pending → running → stopping → terminated, and may skip the ones in the
// middle.
const (
	StatePending    InstanceState = "pending"
	StateRunning    InstanceState = "running"
	StateStopping   InstanceState = "stopping"
	StateTerminated InstanceState = "terminated"
)

// BootMode is the state of a VM after its boot.
type BootMode string

// The boot modes; the empty one is BootSimulated.
const (
	// BootSimulated: the cloud registers a Node and simulates its kubelet.
	BootSimulated BootMode = "simulated"
	// BootKubelet: a real kubelet process joins through TLS bootstrap.
	BootKubelet BootMode = "kubelet"
)

// CreateInstanceRequest requests one VM. Only Name is required.
type CreateInstanceRequest struct {
	// Name of the VM, and of the host: the Node that it becomes has this name. A DNS-1123 subdomain.
	// As with most clouds, several VMs may have the same name.
	Name string `json:"name"`
	// ClientToken makes the create idempotent: the same token with the same parameters gives the same
	// VM, as long as that VM has not been forgotten; with other parameters it is rejected with
	// CodeIdempotencyMismatch.
	ClientToken  string            `json:"clientToken,omitempty"`
	Region       string            `json:"region,omitempty"`
	Zone         string            `json:"zone,omitempty"`
	InstanceType string            `json:"instanceType,omitempty"`
	Image        string            `json:"image,omitempty"`
	Network      string            `json:"network,omitempty"`
	Tags         map[string]string `json:"tags,omitempty"`
	// Boot is the boot mode.
	Boot BootMode `json:"boot,omitempty"`
	// UserData is handed to the VM as it is. The VM looks for a bootstrap token (6 characters, a dot,
	// 16 characters of a–z and 0–9) in it; without one it boots and never joins. One with a real
	// kubelet carries out a #cloud-config. A simulated one joins the cluster whose API server a line
	// "server: https://…" names, if the lab has several.
	UserData []byte `json:"userData,omitempty"`
	// DataVolumes are created with the VM, attached to it, and removed with it.
	DataVolumes []DataVolume `json:"dataVolumes,omitempty"`
}

// HostedInstance is the VM of another cloud of a lab, which runs in this one. The client token is
// required.
type HostedInstance struct {
	CreateInstanceRequest

	// ProviderID is the other cloud's, which the VM and its Node have in the place of this cloud's.
	ProviderID string `json:"providerID"`
}

// DataVolume is a volume that exists as long as its VM.
type DataVolume struct {
	Name    string `json:"name"`
	SizeGiB int64  `json:"sizeGiB"`
}

// Instance is a VM.
type Instance struct {
	ID string `json:"id"`
	// ProviderID is "simulated:///<region>/<zone>/<id>"; the Node's spec.providerID is the same.
	ProviderID   string            `json:"providerID"`
	Name         string            `json:"name"`
	Region       string            `json:"region"`
	Zone         string            `json:"zone"`
	InstanceType string            `json:"instanceType"`
	Image        string            `json:"image"`
	Network      string            `json:"network"`
	Tags         map[string]string `json:"tags,omitempty"`
	Boot         BootMode          `json:"boot"`
	State        InstanceState     `json:"state"`
	// StateReason is the cause of the state, for people; may be "".
	StateReason string `json:"stateReason,omitempty"`
	// Console is the VM's console: the last lines about its boot and join.
	Console     []string  `json:"console,omitempty"`
	PrivateIP   string    `json:"privateIP,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
	ClientToken string    `json:"clientToken,omitempty"`
	// VolumeIDs of the volumes that were created with the VM.
	VolumeIDs []string `json:"volumeIDs,omitempty"`
	// SourceDestCheck is an attribute that can only be changed after the create; true on a new VM.
	SourceDestCheck bool `json:"sourceDestCheck"`
}

// InstanceAttributes are changed by PATCH PathInstanceAttributes; nil leaves an attribute as it is.
type InstanceAttributes struct {
	SourceDestCheck *bool `json:"sourceDestCheck,omitempty"`
}

// InstanceList is one page.
type InstanceList struct {
	Items []Instance `json:"items"`
	// NextPageToken is "" on the last page.
	NextPageToken string `json:"nextPageToken,omitempty"`
}

// CreateVolumeRequest requests a volume that exists independently of VMs.
type CreateVolumeRequest struct {
	Name    string            `json:"name"`
	Region  string            `json:"region,omitempty"`
	Zone    string            `json:"zone,omitempty"`
	SizeGiB int64             `json:"sizeGiB"`
	Tags    map[string]string `json:"tags,omitempty"`
}

// Volume is a block device.
type Volume struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Region  string            `json:"region"`
	Zone    string            `json:"zone"`
	SizeGiB int64             `json:"sizeGiB"`
	Tags    map[string]string `json:"tags,omitempty"`
	// AttachedTo is the ID of a VM, or "".
	AttachedTo string `json:"attachedTo,omitempty"`
}

// AttachVolumeRequest names the VM, which has to be in the volume's zone; a volume is attached to
// one VM at a time.
type AttachVolumeRequest struct {
	InstanceID string `json:"instanceID"`
}

// VolumeList holds all volumes.
type VolumeList struct {
	Items []Volume `json:"items"`
}

// Region is a place with zones.
type Region struct {
	Name  string   `json:"name"`
	Zones []string `json:"zones"`
}

// RegionList holds all regions.
type RegionList struct {
	Items []Region `json:"items"`
}

// InstanceType is a size of VM.
type InstanceType struct {
	Name      string `json:"name"`
	CPU       int64  `json:"cpu"`
	MemoryMiB int64  `json:"memoryMiB"`
	GPU       int64  `json:"gpu"`
}

// InstanceTypeList holds all instance types.
type InstanceTypeList struct {
	Items []InstanceType `json:"items"`
}

// Image is the image that a VM boots from.
type Image struct {
	Name string `json:"name"`
}

// ImageList holds all images.
type ImageList struct {
	Items []Image `json:"items"`
}

// Network is the network that a VM is attached to.
type Network struct {
	Name   string `json:"name"`
	Region string `json:"region"`
	CIDR   string `json:"cidr"`
}

// NetworkList holds all networks.
type NetworkList struct {
	Items []Network `json:"items"`
}

// ErrorCode is the cloud's own name of a failure.
type ErrorCode string

// The cloud's error codes, each with its HTTP status.
const (
	CodeInvalidParameter    ErrorCode = "InvalidParameter"             // 400
	CodeUnauthorized        ErrorCode = "Unauthorized"                 // 401
	CodeForbidden           ErrorCode = "Forbidden"                    // 403
	CodeQuotaExceeded       ErrorCode = "QuotaExceeded"                // 403
	CodeNotFound            ErrorCode = "NotFound"                     // 404
	CodeConflict            ErrorCode = "Conflict"                     // 409
	CodeIdempotencyMismatch ErrorCode = "IdempotencyParameterMismatch" // 409
	CodePreconditionFailed  ErrorCode = "PreconditionFailed"           // 412
	CodeThrottled           ErrorCode = "Throttled"                    // 429, with Retry-After
	CodeInternal            ErrorCode = "InternalError"                // 500
	CodeNoCapacity          ErrorCode = "InsufficientCapacity"         // 503
	CodeUnavailable         ErrorCode = "ServiceUnavailable"           // 503
)

// CallTimeout is Call.Error of a call that was never answered.
const CallTimeout = "Timeout"

// ErrorBody is the body of every answer that is not 2xx.
type ErrorBody struct {
	Code    ErrorCode `json:"code"`
	Message string    `json:"message"`
	// RetryAfterSeconds, as in the Retry-After header; 0 when the cloud requests no wait.
	RetryAfterSeconds float64 `json:"retryAfterSeconds,omitempty"`
}

// Operation names a call in settings and in the call log.
type Operation string

// The operations.
const (
	OpCreateInstance  Operation = "CreateInstance"
	OpDeleteInstance  Operation = "DeleteInstance"
	OpGetInstance     Operation = "GetInstance"
	OpListInstances   Operation = "ListInstances"
	OpModifyInstance  Operation = "ModifyInstance"
	OpCreateVolume    Operation = "CreateVolume"
	OpDeleteVolume    Operation = "DeleteVolume"
	OpGetVolume       Operation = "GetVolume"
	OpListVolumes     Operation = "ListVolumes"
	OpAttachVolume    Operation = "AttachVolume"
	OpDetachVolume    Operation = "DetachVolume"
	OpListLeftovers   Operation = "ListLeftovers"
	OpDeleteLeftovers Operation = "DeleteLeftovers"
	OpDeleteLeftover  Operation = "DeleteLeftover"
	OpDescribeCatalog Operation = "DescribeCatalog"
)

// Settings can be changed while the cloud runs. Durations are Go duration strings.
type Settings struct {
	// Latency of each operation; operations that are not named have none.
	Latency map[Operation]Latency `json:"latency,omitempty"`
	// BootTime is how long a VM is pending, counted from the answer to its create.
	BootTime Latency `json:"bootTime"`
	// StopTime is how long a VM is stopping.
	StopTime Latency `json:"stopTime"`
	// ForgetAfter is how long an ended VM can still be described, and its client token is still known;
	// 0 means 1h.
	ForgetAfter Duration `json:"forgetAfter,omitempty"`
	// PodTerminationTime is how long a pod of a simulated Node takes to end, at most its grace period;
	// negative means that it never ends.
	PodTerminationTime Duration `json:"podTerminationTime"`
	// Quotas bounds the VMs that exist, by region and by instance type; those that are not named are
	// unbounded.
	Quotas Quotas `json:"quotas"`
	// Faults are applied in order; the first that matches and whose Rate applies decides.
	Faults []Fault `json:"faults,omitempty"`
	// FailedZones neither accept creates (InsufficientCapacity) nor keep their VMs' Nodes alive. Their
	// VMs recover when the zone is removed from the list.
	FailedZones []string `json:"failedZones,omitempty"`
	// VMFaults are faults of new VMs.
	VMFaults VMFaults `json:"vmFaults"`
	// InPlaceUpdates are the results of updates in place of simulated Nodes.
	InPlaceUpdates InPlaceUpdates `json:"inPlaceUpdates"`
	// RebootTime is how long a simulated Node is not Ready when it reboots for its machine
	// configuration.
	RebootTime Duration `json:"rebootTime"`
	// Credentials, when set, is the token that every call has to send as "Authorization: Bearer
	// <token>".
	Credentials string `json:"credentials,omitempty"`
}

// Latency is a normal distribution, cut off at 0.
type Latency struct {
	Mean   Duration `json:"mean"`
	Spread Duration `json:"spread,omitempty"`
}

// Quotas bound numbers of VMs.
type Quotas struct {
	InstancesByRegion map[string]int `json:"instancesByRegion,omitempty"`
	InstancesByType   map[string]int `json:"instancesByType,omitempty"`
}

// FaultKind is the way in which a call fails.
type FaultKind string

// The kinds of fault.
const (
	FaultThrottled     FaultKind = "throttled"
	FaultQuota         FaultKind = "quota"
	FaultNoCapacity    FaultKind = "capacity"
	FaultInternal      FaultKind = "internal"
	FaultUnavailable   FaultKind = "unavailable"
	FaultUnauthorized  FaultKind = "unauthorized"
	FaultForbidden     FaultKind = "forbidden"
	FaultTimeoutBefore FaultKind = "timeout-before" // no answer, no effect
	FaultTimeoutAfter  FaultKind = "timeout-after"  // no answer, but the call took effect
	// FaultPartial makes creates of VMs fail as FaultInternal does, after they have created a network
	// interface and a disk (Leftover), and before the VM. For all other calls it is FaultInternal.
	FaultPartial FaultKind = "partial"
)

// Fault makes calls fail.
type Fault struct {
	// Operations it applies to; empty means all.
	Operations []Operation `json:"operations,omitempty"`
	// Zones it applies to; empty means all. A call about a VM is about the VM's zone; calls without a
	// zone, such as lists, match only the empty list.
	Zones []string  `json:"zones,omitempty"`
	Kind  FaultKind `json:"kind"`
	// Rate is the share of matching calls that fail, 0 to 1.
	Rate float64 `json:"rate"`
	// RetryAfter is sent along with throttling.
	RetryAfter Duration `json:"retryAfter,omitempty"`
	// Hold is how long the caller of a timeout is kept waiting before its connection is cut; 0 means
	// until it disconnects, at most a minute.
	Hold Duration `json:"hold,omitempty"`
}

// VMFaults are shares, 0 to 1, of new VMs.
type VMFaults struct {
	// NeverJoin is the share that boots and never becomes a Node.
	NeverJoin float64 `json:"neverJoin,omitempty"`
	// JoinLate is the share that joins JoinDelay after its boot.
	JoinLate  float64  `json:"joinLate,omitempty"`
	JoinDelay Duration `json:"joinDelay,omitempty"`
	// Die is the share that ends by itself DieAfter its boot.
	Die      float64  `json:"die,omitempty"`
	DieAfter Duration `json:"dieAfter,omitempty"`
	// LoseReady is the share whose Node turns not Ready LoseReadyAfter its boot.
	LoseReady      float64  `json:"loseReady,omitempty"`
	LoseReadyAfter Duration `json:"loseReadyAfter,omitempty"`
}

// InPlaceUpdates describes what the agent on a VM does when its Node is ready to be updated in
// place. A change also applies to updates in progress.
type InPlaceUpdates struct {
	// Result of the updates; "" is UpdateSuccessful.
	Result UpdateResult `json:"result,omitempty"`
	// Time of an update, in which the Node is not Ready.
	Time Duration `json:"time"`
	// ComponentsTime is how long the critical components of a Node take to start after its update;
	// then the taint that repels pods is removed. Negative means that they never start.
	ComponentsTime Duration `json:"componentsTime"`
}

// UpdateResult is the result of updates in place.
type UpdateResult string

// The results.
const (
	UpdateSuccessful UpdateResult = "successful"
	UpdateFailed     UpdateResult = "failed"
	UpdateNever      UpdateResult = "never" // the agent does nothing, and reports nothing
)

// Action is an action on one VM.
type Action string

// The actions.
const (
	// ActionDie ends the VM at once, as if its host had failed.
	ActionDie Action = "die"
	// ActionLoseReady makes the VM's kubelet report that it is not ready. A real kubelet is frozen
	// instead.
	ActionLoseReady Action = "lose-ready"
	// ActionFreeze stops the VM: its kubelet reports nothing more, and no pod on it starts or ends.
	ActionFreeze Action = "freeze"
	// ActionRecover undoes ActionLoseReady and ActionFreeze.
	ActionRecover Action = "recover"
)

// InstanceAction is the body of POST PathInstanceActions.
type InstanceAction struct {
	Action Action `json:"action"`
}
