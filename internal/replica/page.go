package replica

import (
	"errors"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page"
	pagewatch "github.com/machine-controller-fleet/machine-controller-fleet/internal/page/watch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// newPageSource returns the source of the page of the fleet; nil if it is not served. It reads with
// the clients of the replica and works in no slot.
func newPageSource(d *deps) (*pagewatch.Watch, error) {
	if !d.o.ServePage {
		return nil, nil //nolint:nilnil // it is switched off
	}
	return pagewatch.New(pagewatch.Config{
		Machines: d.machines, Leases: d.control.CoordinationV1(), Namespace: d.o.Namespace,
		Serves: func(namespace string) bool { return d.unservedNamespace(namespace) == "" },
		Hold: func(namespace string) string {
			value, _ := d.namespaces.Annotation(namespace, v1alpha1.AnnotationHoldDeletions)
			return value
		},
		FleetNamespace: d.o.Fleet.Namespace, FleetName: d.o.Fleet.Name,
		Timeouts: view.Timeouts{
			Creation: d.o.Machine.CreationTimeout, Health: d.o.Health.Timeout, Drain: d.o.Drain.Timeout,
			InPlaceUpdate: d.o.Machine.InPlaceUpdateTimeout, Preserve: d.o.Machine.PreserveTimeout, MaxEvictRetries: d.o.Drain.MaxEvictRetries,
		},
		Targets: d.targetReads, Receipts: d.deletions.Last,
		Replica: d.o.Name, Version: buildinfo.Read().Version, Wall: d.wall,
	})
}

// targetReads returns what this replica knows of target clusters: of the only one, or of those of
// the namespaces in whose slots it works.
func (d *deps) targetReads(namespaces []string) []view.TargetRead {
	if d.target == nil && !d.o.Targets.ByNamespace {
		return nil
	}
	if !d.o.Targets.ByNamespace {
		namespaces = []string{""}
	}
	all := make([]view.TargetRead, 0, len(namespaces))
	for _, namespace := range namespaces {
		read := view.TargetRead{Namespace: namespace}
		switch cluster, err := d.targets.For(namespace); {
		case err != nil:
			if unavailable, ok := errors.AsType[*target.UnavailableError](err); !ok || !unavailable.Pending {
				read.Err = err
			}
		case cluster != nil:
			read.Asked = true
			if cluster.Reach != nil && cluster.Reach().Away {
				read.Err = errTargetAway
			}
		}
		all = append(all, read)
	}
	return all
}

var errTargetAway = errors.New("its API server has not answered this replica for some time")

// PageSource returns the source of the page of the fleet; nil unless Options.ServePage.
func (f *Replica) PageSource() page.Source {
	if f.page == nil {
		return nil
	}
	return f.page
}
