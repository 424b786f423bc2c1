package page

import (
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) { bubbles.Main(m) }
