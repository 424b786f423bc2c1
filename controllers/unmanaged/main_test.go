package unmanaged

import (
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	bubbles.Main(m)
}
